#include "policy/assure/loss_shares.h"

#include <cmath>

namespace derate {
namespace {

constexpr double kCheapest = 1e-3, kDearest = 1e5;  // J for a second
constexpr int kHalvings = 40;

// The phase's clock when a second costs `price`; of equals the higher.
std::size_t best_at(const PhaseCosts& phase, double price) {
  std::size_t best = phase.time.size() - 1;
  const auto cost = [&](std::size_t i) { return phase.energy[i] + price * phase.time[i]; };
  for (std::size_t i = best; i-- > 0;)
    if (cost(i) < cost(best)) best = i;
  return best;
}

std::vector<std::size_t> all_at(std::span<const PhaseCosts> phases, double price) {
  std::vector<std::size_t> out;
  for (const PhaseCosts& phase : phases) out.push_back(best_at(phase, price));
  return out;
}

bool keeps(std::span<const PhaseCosts> phases, const std::vector<std::size_t>& clocks,
           double longest) {
  double work = 0, time = 0;
  for (std::size_t i = 0; i < phases.size(); ++i) {
    work += phases[i].work;
    time += phases[i].work * phases[i].time[clocks[i]];
  }
  return time <= longest * work;
}

}  // namespace

std::vector<std::size_t> share_loss(std::span<const PhaseCosts> phases, double longest) {
  double low = std::log(kCheapest), high = std::log(kDearest);
  std::vector<std::size_t> best = all_at(phases, kCheapest);
  if (keeps(phases, best, longest)) return best;
  best = all_at(phases, kDearest);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    std::vector<std::size_t> clocks = all_at(phases, std::exp(middle));
    const bool kept = keeps(phases, clocks, longest);
    (kept ? high : low) = middle;
    if (kept) best = std::move(clocks);
  }
  return best;
}

}  // namespace derate
