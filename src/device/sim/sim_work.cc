#include "device/sim/sim_work.h"

#include <algorithm>
#include <vector>

namespace derate {
namespace {

class Steps final : public SimWork {
 public:
  explicit Steps(const Workload& workload) : workload_(workload), beyond_(workload.phases.size()) {}

  bool working() const override { return gap_left_ <= 0 && !waits_; }
  const OperatingPoint& at(std::size_t clock) const override { return phase().points[clock]; }
  std::optional<double> drift() const override {
    if (workload_.tabled) return std::nullopt;
    return 1 + phase().power_drift_per_minute * age_ / 60;
  }

  void work(double done, double step_s) override {
    age_ += step_s;
    done_ += done;
    if (phase().work <= Duration::zero()) return;
    const double length = seconds(phase().work);
    if (done_ < length - kWorkResidue) return;
    beyond_[at_] = std::min(done_ - length, length);
    gap_left_ = std::min(gap_left_, 0.0) + seconds(phase().gap);
    at_ = (at_ + 1) % workload_.phases.size();
    waits_ = workload_.gpus > 1 && at_ == 0;
    done_ = beyond_[at_];
    age_ = 0;
  }

  void wait(double step_s) override {
    if (gap_left_ > 0) gap_left_ -= step_s;
  }

  bool waits_for_others() const override { return waits_; }
  void go_on() override { waits_ = false; }

 private:
  const Phase& phase() const { return workload_.phases[at_]; }

  const Workload& workload_;
  std::size_t at_ = 0;   // the phase
  double done_ = 0;      // reference seconds in it
  double age_ = 0;       // seconds in it
  double gap_left_ = 0;  // seconds; below zero: what a step waited too long
  bool waits_ = false;   // for the other GPUs of its job
  // Of each phase, what its last step did beyond its end: it is that much shorter next time, so
  // that phases of a few steps take the right time in the mean.
  std::vector<double> beyond_;
};

}  // namespace

std::unique_ptr<SimWork> make_steps(const Workload& workload) {
  return std::make_unique<Steps>(workload);
}

}  // namespace derate
