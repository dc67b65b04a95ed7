#include "store/usage_bill.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/suggest.h"

namespace derate {
namespace {

constexpr BillBy kAll[] = {BillBy::user,      BillBy::job,      BillBy::pod,
                           BillBy::container, BillBy::instance, BillBy::process};
constexpr const char* kNames[] = {"user", "job", "pod", "container", "instance", "process"};

std::string process_name(const TenantLabels& who) {
  if (!who.pid) return who.process;
  return fmt::format("{} ({})", who.process.empty() ? "pid" : who.process, *who.pid);
}

std::string name_of(const TenantLabels& who, BillBy by) {
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
  }
  return {};
}

}  // namespace

const char* to_string(BillBy by) { return kNames[static_cast<int>(by)]; }

Result<BillBy> parse_bill_by(std::string_view name) {
  for (const BillBy by : kAll)
    if (name == to_string(by)) return by;
  return Error{
      Errc::invalid_argument,
      fmt::format("by '{}'{}", name,
                  choices(name, ": there are ", "user, job, pod, container, instance, process"))};
}

Bill make_bill(const Usage& usage, BillBy by) {
  // Processes are told apart by their keys: a number is used again.
  std::map<std::pair<std::string, std::string>, BillLine> lines;
  for (const UsageRow& row : usage.tenants) {
    const std::string name = name_of(row.labels, by);
    BillLine& line = lines[{name, by == BillBy::process && !name.empty() ? row.key : ""}];
    line.name = name;
    line.sums.add(row.sums);
  }
  Bill out;
  for (auto& [key, line] : lines) out.lines.push_back(std::move(line));
  std::stable_sort(out.lines.begin(), out.lines.end(), [](const BillLine& a, const BillLine& b) {
    if (a.name.empty() != b.name.empty()) return b.name.empty();
    return a.sums.total_mj() > b.sums.total_mj();
  });
  for (const UsageBoardRow& row : usage.boards) out.boards.add(row.sums);
  return out;
}

}  // namespace derate
