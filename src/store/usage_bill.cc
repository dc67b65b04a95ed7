#include "store/usage_bill.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "base/suggest.h"
#include "base/when.h"

namespace derate {
namespace {

constexpr BillBy kAll[] = {BillBy::user,     BillBy::job,     BillBy::pod, BillBy::container,
                           BillBy::instance, BillBy::process, BillBy::gpu, BillBy::day};
constexpr const char* kNames[] = {"user",     "job",     "pod", "container",
                                  "instance", "process", "gpu", "day"};

std::string process_name(const TenantLabels& who) {
  if (!who.pid) return who.process;
  return fmt::format("{} ({})", who.process.empty() ? "pid" : who.process, *who.pid);
}

std::string name_of(const UsageRow& row, BillBy by) {
  const TenantLabels& who = row.labels;
  switch (by) {
    case BillBy::user:
      return who.user;
    case BillBy::job:
      return who.job;
    case BillBy::pod:
      return who.pod.empty() ? "" : who.name_space + "/" + who.pod;
    case BillBy::container:
      return who.container;
    case BillBy::instance:
      return who.instance;
    case BillBy::process:
      return process_name(who);
    case BillBy::gpu:
      return row.gpu;
    case BillBy::day:
      return day_text(row.bucket);
  }
  return {};
}

}  // namespace

const char* to_string(BillBy by) { return kNames[static_cast<int>(by)]; }

Result<BillBy> parse_bill_by(std::string_view name) {
  for (const BillBy by : kAll)
    if (name == to_string(by)) return by;
  return Error{Errc::invalid_argument,
               fmt::format("by '{}'{}", name,
                           choices(name, ": there are ",
                                   "user, job, pod, container, instance, process, gpu, day"))};
}

namespace {

// A GPU's line has what none of its tenants used, too, as the power of a GPU that is idle.
void take_unallocated(std::map<std::pair<std::string, std::string>, BillLine>& lines,
                      const std::vector<UsageBoardRow>& boards, UsageBoardSums& all) {
  for (const UsageBoardRow& row : boards) {
    BillLine& line = lines[{row.gpu, ""}];
    line.name = row.gpu;
    line.sums.base_mj += row.sums.unallocated_mj;
    add_savings(line.sums.savings, row.sums.unallocated_savings);
  }
  all.unallocated_mj = 0;
  all.unallocated_savings.clear();
}

}  // namespace

Bill make_bill(const Usage& usage, BillBy by) {
  // Processes are told apart by their keys: a number is used again.
  std::map<std::pair<std::string, std::string>, BillLine> lines;
  for (const UsageRow& row : usage.tenants) {
    const std::string name = name_of(row, by);
    BillLine& line = lines[{name, by == BillBy::process && !name.empty() ? row.key : ""}];
    line.name = name;
    line.sums.add(row.sums);
  }
  Bill out;
  for (const UsageBoardRow& row : usage.boards) out.boards.add(row.sums);
  if (by == BillBy::gpu) take_unallocated(lines, usage.boards, out.boards);
  for (auto& [key, line] : lines) out.lines.push_back(std::move(line));
  std::stable_sort(out.lines.begin(), out.lines.end(), [&](const BillLine& a, const BillLine& b) {
    if (by == BillBy::day) return a.name < b.name;
    if (a.name.empty() != b.name.empty()) return b.name.empty();
    return a.sums.total_mj() > b.sums.total_mj();
  });
  out.savings = out.boards.unallocated_savings;
  for (const BillLine& line : out.lines) add_savings(out.savings, line.sums.savings);
  return out;
}

Result<Usage> read_usage_by_day(const std::string& path, WallTime from, WallTime to,
                                const std::vector<std::string>& gpus) {
  const Usage all = TRY(read_usage(path, from, to, gpus));
  Usage out{.losses = all.losses, .first = all.first, .last = all.last};
  if (!all.first) return out;
  const WallTime end = std::min(to, *all.last);
  for (WallTime day = std::max(from, *all.first); day < end;) {
    const WallTime next = std::min(end, day_after(day));
    Usage part = TRY(read_usage(path, day, next, gpus));
    std::move(part.tenants.begin(), part.tenants.end(), std::back_inserter(out.tenants));
    std::move(part.boards.begin(), part.boards.end(), std::back_inserter(out.boards));
    day = next;
  }
  return out;
}

std::optional<BillSaving> bill_saving(const UsageSavings& savings) {
  if (savings.size() != 1) return std::nullopt;
  const auto& [method, sums] = *savings.begin();
  const Saving saving = saving_of(sums);
  return energy_saving(saving) ? std::optional(BillSaving{method, saving}) : std::nullopt;
}

}  // namespace derate
