#include "govern/group/launch_windows.h"

#include <algorithm>
#include <cmath>

namespace derate {
namespace {

using Rates = std::span<const LaunchRate* const>;

bool mixes_alike(Rates rates) {
  return std::all_of(rates.begin(), rates.end(), [&](const LaunchRate* each) {
    return mix_distance(each->mix, rates[0]->mix) <= LaunchPhases::kSame;
  });
}

struct Spread {
  double mean = 0, sd = 0;
};

Spread spread_of(std::span<const double> values) {
  Spread out;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) out.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - out.mean) * (value - out.mean);
  out.sd = std::sqrt(squares / (count - 1));
  return out;
}

}  // namespace

double LaunchWindows::launched_since(std::size_t process) const {
  const std::uint64_t before = windows_.front().collectives[process],
                      now = windows_.back().collectives[process];
  return now > before ? static_cast<double>(now - before) : 0;
}

bool LaunchWindows::as_many_collectives() const {
  const auto& now = windows_.back().collectives;
  double fewest = launched_since(0);
  for (std::size_t i = 1; i < now.size(); ++i) fewest = std::min(fewest, launched_since(i));
  const auto [least, most] = std::minmax_element(now.begin(), now.end());
  return fewest >= kFewest && static_cast<double>(*most - *least) <= kBehind * fewest;
}

bool LaunchWindows::same_rates(double times) const {
  if (windows_.size() < kMost) return false;
  for (std::size_t i = 1; i < windows_.front().per_second.size(); ++i) {
    std::vector<double> ratios;
    for (const Window& each : windows_) ratios.push_back(each.per_second[i] / each.per_second[0]);
    const Spread spread = spread_of(ratios);
    if (std::abs(spread.mean - 1) > times * kMeanDiffers || spread.sd > times * kSpread)
      return false;
  }
  return true;
}

std::optional<LaunchWindows::Verdict> LaunchWindows::add(Rates rates, bool are_in_step) {
  Window next{rates[0]->time, {}, {}};
  for (const LaunchRate* each : rates) {
    if (each->time != next.time || each->per_second <= 0) return std::nullopt;
    next.per_second.push_back(each->per_second);
    next.collectives.push_back(each->collectives);
  }
  if (!windows_.empty() && next.time <= windows_.back().time) return std::nullopt;
  windows_.push_back(std::move(next));
  if (windows_.size() > kMost) windows_.pop_front();

  const bool exchange = std::any_of(rates.begin(), rates.end(), [&](const LaunchRate* const& each) {
    return launched_since(static_cast<std::size_t>(&each - rates.data())) > 0;
  });
  if (exchange) return as_many_collectives() ? Verdict::exchange : Verdict::apart;
  const bool same = mixes_alike(rates) && same_rates(are_in_step ? kStays : 1);
  return same ? Verdict::same_rates : Verdict::apart;
}

}  // namespace derate
