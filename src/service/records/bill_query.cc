#include "service/records/bill_query.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "api/requests.h"
#include "base/json.h"
#include "base/when.h"
#include "core/gpu_selection.h"

namespace derate {
namespace {

double joules_of(std::int64_t mj) { return static_cast<double>(mj) / 1000; }
// Exact below 2^53 mJ, which one GPU of 1 kW uses in 285 years.
std::int64_t millijoules_of(double joules) { return std::llround(joules * 1000); }

std::int64_t whole_seconds(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}
WallTime wall_time(std::int64_t unix_seconds) {
  return WallTime(std::chrono::seconds(unix_seconds));
}

std::vector<BillSavingView> saving_views(const UsageSavings& savings) {
  std::vector<BillSavingView> out;
  for (const auto& [method, sums] : savings)
    out.push_back(
        {method, joules_of(sums.energy_mj), joules_of(sums.at_highest_mj), joules_of(sums.sd_mj)});
  return out;
}

UsageSavings savings_of(const std::vector<BillSavingView>& views) {
  UsageSavings out;
  for (const BillSavingView& each : views)
    out[each.method] = {millijoules_of(each.energy_joules), millijoules_of(each.at_highest_joules),
                        millijoules_of(each.sd_joules)};
  return out;
}

// Those that are there now come first: an index means one of them.
Result<std::vector<std::string>> billed_gpus(const Usage& usage, std::span<const GpuId> known,
                                             const std::string& choice) {
  std::vector<GpuId> ids(known.begin(), known.end());
  for (const UsageBoardRow& board : usage.boards)
    if (std::none_of(ids.begin(), ids.end(),
                     [&](const GpuId& each) { return each.uuid == board.gpu; }))
      ids.push_back({-1, board.gpu, "", ""});
  std::vector<std::string> out;
  for (const int at : TRY(select_gpus(ids, choice)))
    out.push_back(ids[static_cast<std::size_t>(at)].uuid);
  return out;
}

BillLineView line_view(const BillLine& line, BillBy by, std::span<const GpuId> known) {
  const UsageSums& sums = line.sums;
  BillLineView out{.name = line.name,
                   .base_joules = joules_of(sums.base_mj),
                   .context_joules = joules_of(sums.context_mj),
                   .dynamic_joules = joules_of(sums.dynamic_mj),
                   .sigma_joules = joules_of(sums.sigma_mj),
                   .unsure_joules = joules_of(sums.unsure_mj),
                   .prior_joules = joules_of(sums.prior_mj),
                   .seconds = static_cast<double>(sums.time_ms) / 1000,
                   .savings = saving_views(sums.savings)};
  if (by != BillBy::gpu) return out;
  const auto gpu = std::find_if(known.begin(), known.end(),
                                [&](const GpuId& each) { return each.uuid == line.name; });
  if (gpu != known.end()) out.index = gpu->index;
  return out;
}

BillAnswer answer_of_usage(const Usage& usage, BillBy by, std::span<const GpuId> known) {
  const Bill bill = make_bill(usage, by);
  BillAnswer out{.by = to_string(by)};
  if (usage.first) out.first_unix_seconds = whole_seconds(*usage.first);
  if (usage.last) out.last_unix_seconds = whole_seconds(*usage.last);
  for (const BillLine& line : bill.lines) out.lines.push_back(line_view(line, by, known));
  out.board_joules = joules_of(bill.boards.board_mj);
  out.unallocated_joules = joules_of(bill.boards.unallocated_mj);
  out.by_power_joules = joules_of(bill.boards.by_power_mj);
  out.seconds = static_cast<double>(bill.boards.time_ms) / 1000;
  out.lost_seconds = static_cast<double>(bill.boards.lost_ms) / 1000;
  out.unallocated_savings = saving_views(bill.boards.unallocated_savings);
  for (const UsageLoss& loss : usage.losses)
    out.losses.push_back({whole_seconds(loss.from), whole_seconds(loss.to),
                          static_cast<double>(loss.lost_ms) / 1000});
  out.broken_rows = usage.broken_rows;
  return out;
}

}  // namespace

Result<Json> answer_bill(const std::string& file, const BillRead& request, WallTime now,
                         std::span<const GpuId> known) {
  const BillBy by = TRY(parse_bill_by(request.by));
  const WallTime from = TRY(parse_when(request.from, now).with("from"));
  const WallTime to = TRY(parse_when(request.to, now).with("to"));
  if (from >= to)
    return Error{Errc::invalid_argument,
                 fmt::format("from {} is not before to {}", when_text(from), when_text(to))};
  const auto read = by == BillBy::day ? read_usage_by_day : read_usage;
  // A number that none of those has that are there now means none of earlier ones either.
  for (const GpuName& name : TRY(parse_gpu_selection(request.gpus)).names)
    if (name.kind == GpuName::Kind::number && !known.empty()) TRY(select_gpus(known, name.text));
  std::vector<std::string> gpus;
  // A GPU that is gone is named by its UUID.
  if (!request.gpus.empty())
    gpus = TRY(billed_gpus(TRY(read_usage(file, from, to, {})), known, request.gpus));
  BillAnswer out = answer_of_usage(TRY(read(file, from, to, gpus)), by, known);
  if (out.lines.size() > kMostBillLines)
    return Error{Errc::invalid_argument,
                 fmt::format("by {} the bill has {} lines: allowed are {}, of a shorter time",
                             request.by, out.lines.size(), kMostBillLines)};
  out.from_unix_seconds = seconds(from.time_since_epoch());
  out.to_unix_seconds = seconds(to.time_since_epoch());
  return answer_json(out);
}

Bill bill_of(const BillAnswer& answer) {
  Bill out;
  for (const BillLineView& line : answer.lines)
    out.lines.push_back({line.name,
                         {.base_mj = millijoules_of(line.base_joules),
                          .context_mj = millijoules_of(line.context_joules),
                          .dynamic_mj = millijoules_of(line.dynamic_joules),
                          .sigma_mj = millijoules_of(line.sigma_joules),
                          .unsure_mj = millijoules_of(line.unsure_joules),
                          .prior_mj = millijoules_of(line.prior_joules),
                          .time_ms = millijoules_of(line.seconds),
                          .savings = savings_of(line.savings)}});
  out.boards = {.board_mj = millijoules_of(answer.board_joules),
                .unallocated_mj = millijoules_of(answer.unallocated_joules),
                .by_power_mj = millijoules_of(answer.by_power_joules),
                .time_ms = millijoules_of(answer.seconds),
                .lost_ms = millijoules_of(answer.lost_seconds),
                .unallocated_savings = savings_of(answer.unallocated_savings)};
  out.savings = out.boards.unallocated_savings;
  for (const BillLine& line : out.lines) add_savings(out.savings, line.sums.savings);
  return out;
}

std::vector<UsageLoss> losses_of(const BillAnswer& answer) {
  std::vector<UsageLoss> out;
  for (const BillLossView& loss : answer.losses)
    out.push_back({wall_time(loss.from_unix_seconds), wall_time(loss.to_unix_seconds),
                   millijoules_of(loss.lost_seconds)});
  return out;
}

}  // namespace derate
