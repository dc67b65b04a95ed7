#include "model/launch_phases.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace derate {
namespace {

// Windows after which a phase's mix forgets as fast as it learns: kernels are exchanged now and
// then (another algorithm of a library's), slowly against this.
constexpr int kRemembered = 20;
// After so many windows of no phase, longer ones are tried: a step may take longer than a window.
constexpr int kPatience = 6;
// Parts of a window in which the work before may have ended, in tenths.
constexpr int kParts = 10;

// Without what is rare; the shares add up to 1 again.
void forget_rare(KernelMix& mix) {
  std::vector<std::pair<double, std::uint64_t>> kernels;
  for (const auto& [id, share] : mix) kernels.emplace_back(share, id);
  const std::size_t most = std::min(kernels.size(), kMostKernels);
  const auto end_of_most = kernels.begin() + static_cast<std::ptrdiff_t>(most);
  std::nth_element(kernels.begin(), end_of_most, kernels.end(), std::greater<>());
  const auto is_rare = [](const auto& kernel) { return kernel.first < kLeastShare; };
  const auto end = std::remove_if(kernels.begin(), end_of_most, is_rare);
  if (end == kernels.end()) return;
  double sum = 0;
  for (auto kernel = kernels.begin(); kernel != end; ++kernel) sum += kernel->first;
  mix.clear();
  for (auto kernel = kernels.begin(); kernel != end; ++kernel)
    mix[kernel->second] = kernel->first / sum;
}

// As mix_distance() to a blend of two, which is not made: it is asked for often.
double distance_to_blend(const KernelMix& a, const KernelMix& b, double share,
                         const KernelMix& mix) {
  double sum = 0;
  auto in_a = a.begin(), in_b = b.begin(), in_mix = mix.begin();
  const auto take = [](auto& at, const KernelMix& from, std::uint64_t id) {
    return at != from.end() && at->first == id ? (at++)->second : 0;
  };
  while (in_a != a.end() || in_b != b.end() || in_mix != mix.end()) {
    std::uint64_t id = std::numeric_limits<std::uint64_t>::max();
    if (in_a != a.end()) id = std::min(id, in_a->first);
    if (in_b != b.end()) id = std::min(id, in_b->first);
    if (in_mix != mix.end()) id = std::min(id, in_mix->first);
    const double blended = share * take(in_a, a, id) + (1 - share) * take(in_b, b, id);
    sum += std::abs(blended - take(in_mix, mix, id));
  }
  return sum / 2;
}

}  // namespace

double mix_distance(const KernelMix& a, const KernelMix& b) {
  double sum = 0;
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() || right != b.end()) {
    if (right == b.end() || (left != a.end() && left->first < right->first)) {
      sum += (left++)->second;
    } else if (left == a.end() || right->first < left->first) {
      sum += (right++)->second;
    } else {
      sum += std::abs(left->second - right->second);
      ++left, ++right;
    }
  }
  return sum / 2;
}

std::optional<LaunchCounts> launches_between(const LaunchCounts& from, const LaunchCounts& to) {
  LaunchCounts out;
  for (const auto& [id, count] : to) {
    const auto before = from.find(id);
    const std::uint64_t was = before == from.end() ? 0 : before->second;
    if (count < was) return std::nullopt;
    if (count > was) out[id] = count - was;
  }
  return out;
}

double total_launches(const LaunchCounts& counts) {
  double sum = 0;
  for (const auto& [id, count] : counts) sum += static_cast<double>(count);
  return sum;
}

KernelMix mix_of(const LaunchCounts& counts) {
  const double all = total_launches(counts);
  KernelMix out;
  for (const auto& [id, count] : counts) out[id] = static_cast<double>(count) / all;
  return out;
}

KernelMix learned(const KernelMix& known, const KernelMix& seen, double weight) {
  KernelMix out;
  for (const auto& [id, share] : seen) out[id] += weight * share;
  for (const auto& [id, share] : known) out[id] += (1 - weight) * share;
  forget_rare(out);
  return out;
}

std::optional<LaunchState> LaunchPhases::add(Instant time, const LaunchCounts& counts) {
  if (!window_) {
    window_ = Window{time, counts};
    return std::nullopt;
  }
  const Duration lasted = time - window_->begin;
  if (lasted < shortest_) return std::nullopt;
  const std::optional<LaunchCounts> now = launches_between(window_->counts, counts);
  const double launches = now ? total_launches(*now) : 0;
  if (now && launches > 0 && launches < kFewest && lasted < kLongest) return std::nullopt;
  window_ = Window{time, counts};
  if (!now) return std::nullopt;
  ++windows_;
  if (launches == 0) {
    known_ = true;
    return LaunchState{};
  }
  std::optional<LaunchState> state = judge(mix_of(*now), launches);
  untold_ += ((state ? 0.0 : 1.0) - untold_) / kRestlessOver;
  if (state) state->restless = untold_ > kRestless;
  return state;
}

std::optional<LaunchState> LaunchPhases::judge(const KernelMix& mix, double launches) {
  known_ = true;
  if (Phase* const phase = nearest(mix)) return take(*phase, mix, launches);
  if (is_between(mix)) return std::nullopt;
  if (unknown_ && mix_distance(unknown_->mix, mix) <= kSame) {
    const Unknown before = *unknown_;
    Phase& phase = remember(before.mix);
    (void)take(phase, before.mix, before.launches);
    return take(phase, mix, launches);
  }
  unknown_ = Unknown{mix, launches};
  note_unknown();
  return std::nullopt;
}

std::optional<LaunchState> LaunchPhases::take(Phase& phase, const KernelMix& mix, double launches) {
  const double weight = 1.0 / std::min(phase.windows + 1, kRemembered);
  const double distance = mix_distance(phase.mix, mix);
  const bool first = phase.windows < kFirst;
  const bool pure = distance <= (first ? kPureAtFirst : kPure * phase.unsteadiness + kPureMore);
  // The first window is the mix itself and says nothing of how steady it is.
  if (phase.windows > 0)
    phase.unsteadiness += (distance - phase.unsteadiness) / std::min(phase.windows, kRemembered);
  phase.mix = learned(phase.mix, mix, weight);
  phase.done += launches;
  phase.windows += 1;
  phase.seen = windows_;
  const bool another = std::exchange(current_, phase.number) != phase.number;
  if (another || !pure || told_ + 1 < windows_) ++run_;
  told_ = windows_;
  unknown_.reset();
  unknown_in_a_row_ = 0;
  return LaunchState{
      .phase = phase.number, .done = phase.done, .unsteadiness = phase.unsteadiness, .run = run_};
}

// Of the phases that it is near enough to.
LaunchPhases::Phase* LaunchPhases::nearest(const KernelMix& mix) {
  Phase* out = nullptr;
  double least = kSame;
  for (Phase& phase : phases_) {
    const double distance = mix_distance(phase.mix, mix);
    if (distance > least) continue;
    least = distance;
    out = &phase;
  }
  return out;
}

// Whether the work before has ended in the window and another phase that is known has begun.
bool LaunchPhases::is_between(const KernelMix& mix) const {
  const auto before = std::find_if(phases_.begin(), phases_.end(),
                                   [this](const Phase& each) { return each.number == current_; });
  if (before == phases_.end()) return false;
  for (const Phase& other : phases_) {
    if (other.number == current_) continue;
    for (int part = 1; part < kParts; ++part) {
      const double share = static_cast<double>(part) / kParts;
      if (distance_to_blend(before->mix, other.mix, share, mix) <= kSame / 2) return true;
    }
  }
  return false;
}

LaunchPhases::Phase& LaunchPhases::remember(const KernelMix& mix) {
  if (phases_.size() == kMost)
    phases_.erase(std::min_element(phases_.begin(), phases_.end(),
                                   [](const Phase& a, const Phase& b) { return a.seen < b.seen; }));
  phases_.push_back(Phase{.number = ++met_, .mix = mix});
  return phases_.back();
}

// One window alone may be noise, or the first of a new phase.
void LaunchPhases::note_unknown() {
  known_ = ++unknown_in_a_row_ < 2 && current_ != 0;
  if (unknown_in_a_row_ < kPatience) return;
  unknown_in_a_row_ = 0;
  unknown_.reset();
  shortest_ = std::min(2 * shortest_, kLongest);
}

}  // namespace derate
