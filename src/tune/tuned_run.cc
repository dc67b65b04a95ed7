#include "tune/tuned_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace derate {
namespace {

class OrderedPolicy final : public Policy {
 public:
  explicit OrderedPolicy(std::shared_ptr<const StandingOrder> order) : order_(std::move(order)) {}
  Decision decide(const Estimate&, const Envelope&) override {
    const RunOrder& order = order_->order;
    Decision out = order_->knob == Knob::power_limit
                       ? Decision::cap(Watts(order.setting), order.why)
                       : Decision::set(Megahertz(order.setting), order.why);
    out.probing = order.profiling;
    return out;
  }

 private:
  std::shared_ptr<const StandingOrder> order_;
};

}  // namespace

std::unique_ptr<Policy> ordered_policy(std::shared_ptr<const StandingOrder> order) {
  return std::make_unique<OrderedPolicy>(std::move(order));
}

TunedRun::TunedRun(RunTunerOptions options, std::size_t gpus)
    : tuner_(std::move(options)), order_(std::make_shared<StandingOrder>()), gpus_(gpus) {
  order_->knob = tuner_.options().knob;
  order_->order = {tuner_.options().search.settings.back(), false, {"nothing is measured yet"}};
}

// A lost reading leaves a GPU as it is; heat, idleness and a loss for long do not.
bool TunedRun::obeyed(const Record& record) const {
  using Rule = Clamped::Rule;
  using Outcome = Actuation::Outcome;
  const Rule rule = record.clamped.rule;
  if (rule == Rule::thermal || rule == Rule::idle || rule == Rule::wake || rule == Rule::expired)
    return false;
  const Actuation& done = record.actuation;
  if (done.outcome != Outcome::nothing && done.outcome != Outcome::written) return false;
  const double wanted = order_->order.setting;
  if (order_->knob == Knob::power_limit)
    return done.power_limit && std::abs(done.power_limit->value() - wanted) < 0.5;
  return done.locked && std::abs(done.locked->value() - wanted) < 0.5;
}

void TunedRun::add_record(std::size_t gpu, const Record& record) {
  Gpu& its = gpus_[gpu];
  news_ = true;
  its.obeys = obeyed(record);
  if (record.sample) {
    its.meter.add(*record.sample);
    its.news = true;
  }
  // A job counts once, on whichever of its GPUs it is heard.
  const auto& progress = record.estimate.work.progress;
  if (progress && (!heard_ || progress->run != heard_->run || progress->time > heard_->time))
    if (!heard_ || gpu == 0 || progress->run == heard_->run) heard_ = progress;
}

// Of all GPUs, once each has been read since it was last summed up.
std::optional<Joules> TunedRun::energy() {
  Joules sum;
  for (const Gpu& gpu : gpus_) {
    const auto joules = gpu.meter.total();
    if (!gpu.news || !joules) return std::nullopt;
    sum += *joules;
  }
  for (Gpu& gpu : gpus_) gpu.news = false;
  return sum;
}

void TunedRun::round(Instant now) {
  if (!std::exchange(news_, false)) return;
  RunSight sight{.time = now, .work = work(), .energy = energy()};
  sight.in_force =
      std::all_of(gpus_.begin(), gpus_.end(), [](const Gpu& gpu) { return gpu.obeys; });
  const double before = std::exchange(order_->order, tuner_.next(sight)).setting;
  // What was done about the last order says nothing of another.
  if (order_->order.setting == before) return;
  for (Gpu& gpu : gpus_) gpu.obeys = false;
}

}  // namespace derate
