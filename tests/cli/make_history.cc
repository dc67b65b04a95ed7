// make_history FILE FROM SECONDS [EVERY]: a history for tests of the command, the same each time:
// of each EVERY seconds the first is kept. GPU ...01 is governed by assure and shared by two
// tenants, GPU ...02 is only observed and not read for a while in the middle.
#include <fmt/format.h>

#include <cmath>

#include "base/exit_code.h"
#include "base/number.h"
#include "base/when.h"
#include "store/history/history_store.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const std::string kGoverned = "GPU-00000000-0000-0000-0000-000000000001";
const std::string kObserved = "GPU-00000000-0000-0000-0000-000000000002";

HistoryPoint made_point(std::int64_t watts, bool governed) {
  using F = HistoryField;
  HistoryPoint out;
  out[F::covered_ms] = 1000;
  out[F::energy_mj] = watts * 1000;
  out[F::power_most_mw] = watts * 1000;
  out[F::sm_clock_mhz_ms] = (governed ? 1410 : 1980) * 1000;
  out[F::sm_clock_ms] = 1000;
  out[F::gpu_utilisation_permille_ms] = 930 * 1000;
  out[F::gpu_utilisation_ms] = 1000;
  out[F::memory_utilisation_permille_ms] = 410 * 1000;
  out[F::memory_utilisation_ms] = 1000;
  out[F::temperature_most_celsius] = 40 + watts / 20;
  out[F::throttle_bits] = 0;
  if (!governed) return out;
  out[F::asked_clock_mhz_ms] = 1410 * 1000;
  out[F::asked_clock_ms] = 1000;
  out[F::saved_of_mj] = watts * 1000;
  out[F::saved_at_highest_mj] = watts * 1250;
  out[F::saved_sd_mj] = watts * 20;
  out[F::performance_permille_ms] = 935 * 1000;
  out[F::performance_ms] = 1000;
  out[F::promise_permille_ms] = 900 * 1000;
  out[F::promise_ms] = 1000;
  out[F::broken_ms] = 0;
  out[F::probing_ms] = 0;
  return out;
}

HistorySecond made_second(WallTime begin, double share) {
  const auto watts = std::llround(400 + 150 * std::sin(share * 12));
  HistorySecond out{.begin = begin};
  out.parts.push_back({{.gpu = kGoverned, .policy = "assure"}, made_point(watts, true)});
  const TenantLabels train{.pid = 4242, .process = "train", .user = "ann", .job = "17"};
  const TenantLabels serve{.pid = 77, .process = "serve", .user = "bob"};
  for (const auto& [labels, part] : {std::pair(train, watts / 2), std::pair(serve, watts / 4)}) {
    HistoryPoint point = made_point(part, true);
    point[HistoryField::energy_sd_mj] = part * 10;
    out.parts.push_back({{.kind = HistoryKind::tenant,
                          .gpu = kGoverned,
                          .tenant = fmt::format("{}", *labels.pid),
                          .labels = labels},
                         point});
  }
  if (share < 0.4 || share >= 0.5) out.parts.push_back({{.gpu = kObserved}, made_point(90, false)});
  return out;
}

HistoryRows made_happenings(WallTime from) {
  HistoryRows out;
  const auto event = [&](Duration after, EventKind kind, std::string message,
                         std::optional<int> gpu) {
    Event each{.time = from + after, .kind = kind, .gpu_index = gpu, .message = std::move(message)};
    if (gpu) each.gpu = *gpu == 0 ? kGoverned : kObserved;
    if (kind == EventKind::governed) each.fields = {{"policy", "assure"}};
    out.events.push_back(std::move(each));
  };
  event(1s, EventKind::started, "2 GPUs are open", {});
  event(2s, EventKind::governed, "GPU 0 is governed by assure", 0);
  event(600s, EventKind::lost, "GPU 1 does not answer", 1);
  for (int change = 0; change < 12; ++change)
    out.decisions.push_back({.time = from + 2s + change * 60s,
                             .gpu = kGoverned,
                             .policy = "assure",
                             .source = "command",
                             .who = "uid 0",
                             .rule = change == 5 ? "thermal" : "none",
                             .reason = "the cheapest clock that keeps 90 %",
                             .asked_clock_mhz = 1290.0 + 15 * change,
                             .sm_clock_mhz = 1290.0 + 15 * change,
                             .expected_performance_ratio = 0.935,
                             .promised_performance_ratio = 0.9});
  return out;
}

Result<void> make(const std::string& file, WallTime from, int length, int every) {
  HistoryStore store(file);
  TRY(store.add(made_happenings(from), 0s));
  HistoryRows rows;
  for (int second = 0; second < length; second += every) {
    rows.seconds.push_back(made_second(from + 1s * second, second / (1.0 * length)));
    constexpr std::size_t kAtOnce = 600;
    if (rows.seconds.size() < kAtOnce && second + every < length) continue;
    TRY(store.add(rows, 1s * second));
    rows.seconds.clear();
  }
  return {};
}

}  // namespace
}  // namespace derate

int main(int argc, char** argv) {
  using namespace derate;
  const auto number = [&](int at) { return argc > at ? parse_number<int>(argv[at]) : 1; };
  const auto length = number(3), every = number(4);
  const auto from = argc > 3 ? parse_when(argv[2], {}) : Error{Errc::invalid_argument, "usage"};
  if (argc < 4 || argc > 5 || !from.ok() || !length || !every || *every < 1) {
    fmt::print(stderr, "usage: make_history FILE FROM SECONDS [EVERY]\n");
    return exit_code::kUsage;
  }
  const auto made = make(argv[1], *from, *length, *every);
  if (!made.ok()) fmt::print(stderr, "make_history: {}\n", made.error().message);
  return made.ok() ? exit_code::kOk : exit_code::kFailure;
}
