// A RunTuner at work on a governor's GPUs: records in, an order out that the GPUs' policies carry
// out. It writes nothing; the governor's actuators do.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "core/record.h"
#include "policy/policy.h"
#include "telemetry/energy_meter.h"
#include "tune/run_tuner.h"

namespace derate {

// What the policies of a job's GPUs carry out.
struct StandingOrder {
  Knob knob = Knob::power_limit;
  RunOrder order;
};

// Says every tick what is ordered.
std::unique_ptr<Policy> ordered_policy(std::shared_ptr<const StandingOrder> order);

class TunedRun {
 public:
  // The control period of its GPUs: several rounds within the second that a setting settles in.
  static constexpr Duration kTick = std::chrono::milliseconds(100);

  TunedRun(RunTunerOptions options, std::size_t gpus);

  // For one of its GPUs; outlives the run and then keeps to its last order.
  std::unique_ptr<Policy> policy() const { return ordered_policy(order_); }

  // What was done on its GPU number `gpu` in a tick that may write: in a dry run nothing comes into
  // force, and that is not seen here.
  void add_record(std::size_t gpu, const Record& record);
  // How far the job is, from one who knows; from then on the beats of records count no more.
  void report_work(const Progress& progress) { reported_ = progress; }
  // After the records of a round; without any of its GPUs nothing happens.
  void round(Instant now);

  const RunOrder& order() const { return order_->order; }
  Knob knob() const { return order_->knob; }
  const RunTuner& tuner() const { return tuner_; }
  std::optional<Progress> work() const { return reported_ ? reported_ : heard_; }
  std::size_t gpus() const { return gpus_.size(); }

 private:
  struct Gpu {
    EnergyMeter meter;
    bool news = false;   // since the joules were last summed up
    bool obeys = false;  // it has the setting
  };
  bool obeyed(const Record& record) const;
  std::optional<Joules> energy();

  RunTuner tuner_;
  std::shared_ptr<StandingOrder> order_;
  std::vector<Gpu> gpus_;
  std::optional<Progress> reported_, heard_;
  bool news_ = false;  // since the last round
};

}  // namespace derate
