#include "store/history/history.h"

#include <tuple>

namespace derate {
namespace {

constexpr HistoryColumn kHistoryColumns[] = {
    {"covered_ms", HistoryFold::sum, true, true, "time for which the energy is known"},
    {"energy_mj", HistoryFold::sum, true, true, "energy"},
    {"energy_sd_mj", HistoryFold::sum, false, true, "standard deviation of a tenant's share"},
    {"saved_of_mj", HistoryFold::sum, true, true,
     "energy of the time for which a saving is estimated"},
    {"saved_at_highest_mj", HistoryFold::sum, true, true,
     "what the same work would have taken at the highest clock, estimated"},
    {"saved_sd_mj", HistoryFold::sum, true, true, "standard deviation of that estimate"},
    {"power_most_mw", HistoryFold::most, true, false, "highest power that was read"},
    {"sm_clock_mhz_ms", HistoryFold::sum, true, false, "SM clock, summed over time"},
    {"sm_clock_ms", HistoryFold::sum, true, false, "time for which the SM clock is known"},
    {"asked_clock_mhz_ms", HistoryFold::sum, true, false,
     "clock that was asked for, summed over the time of our locks"},
    {"asked_clock_ms", HistoryFold::sum, true, false, "time with a lock of ours in force"},
    {"gpu_utilisation_permille_ms", HistoryFold::sum, true, false,
     "GPU utilisation, summed over time"},
    {"gpu_utilisation_ms", HistoryFold::sum, true, false,
     "time for which the GPU utilisation is known"},
    {"memory_utilisation_permille_ms", HistoryFold::sum, true, false,
     "memory utilisation, summed over time"},
    {"memory_utilisation_ms", HistoryFold::sum, true, false,
     "time for which the memory utilisation is known"},
    {"temperature_most_celsius", HistoryFold::most, true, false, "highest temperature"},
    {"throttle_bits", HistoryFold::bits, true, false, "throttle reasons that were ever set"},
    {"performance_permille_ms", HistoryFold::sum, true, false,
     "estimated performance relative to the highest clock, summed over time"},
    {"performance_ms", HistoryFold::sum, true, false,
     "time for which the performance is estimated"},
    {"promise_permille_ms", HistoryFold::sum, true, false,
     "promised performance, summed over time"},
    {"promise_ms", HistoryFold::sum, true, false, "time for which something was promised"},
    {"broken_ms", HistoryFold::sum, true, false,
     "time with the estimated performance below the promise"},
    {"probing_ms", HistoryFold::sum, true, false, "time in which clocks were tried out"},
};
static_assert(std::size(kHistoryColumns) == kHistoryFields);

auto in_order(const TenantLabels& who) {
  return std::tie(who.pid, who.process, who.user, who.container, who.name_space, who.pod, who.job,
                  who.instance);
}

}  // namespace

bool HistorySeriesKey::operator<(const HistorySeriesKey& other) const {
  const auto names = [](const HistorySeriesKey& key) {
    return std::tie(key.gpu, key.kind, key.policy, key.tenant);
  };
  if (names(*this) != names(other)) return names(*this) < names(other);
  return in_order(labels) < in_order(other.labels);
}

std::span<const HistoryColumn> history_columns() { return kHistoryColumns; }

void HistoryPoint::fold(const HistoryPoint& more) {
  for (std::size_t i = 0; i < kHistoryFields; ++i) {
    if (!more.values[i]) continue;
    values[i] =
        values[i] ? folded(kHistoryColumns[i].fold, *values[i], *more.values[i]) : *more.values[i];
  }
}

std::optional<double> HistoryPoint::mean(HistoryField sum, HistoryField time) const {
  const auto& whole = (*this)[sum];
  const auto& ms = (*this)[time];
  if (!whole || !ms || *ms <= 0) return std::nullopt;
  return static_cast<double>(*whole) / static_cast<double>(*ms);
}

}  // namespace derate
