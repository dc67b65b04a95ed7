#include "device/sim/sim_work.h"

#include <algorithm>
#include <vector>

namespace derate {
namespace {

class Steps final : public SimWork {
 public:
  explicit Steps(const Workload& workload)
      : workload_(workload), length_(phase_length(workload, 0)), beyond_(workload.phases.size()) {}

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
    if (done_ < length_ - kWorkResidue) return;
    const bool varies = workload_.spread.share > 0;
    beyond_[at_] = varies ? done_ - length_ : std::min(done_ - length_, length_);
    gap_left_ = std::min(gap_left_, 0.0) + seconds(phase().gap);
    at_ = (at_ + 1) % workload_.phases.size();
    length_ = phase_length(workload_, ++number_);
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
  std::size_t at_ = 0;        // the phase
  std::uint64_t number_ = 0;  // of it since the work began
  double length_;             // reference seconds of it
  double done_ = 0;           // reference seconds in it
  double age_ = 0;            // seconds in it
  double gap_left_ = 0;       // seconds; below zero: what a step waited too long
  bool waits_ = false;        // for the other GPUs of its job
  // Of each phase, what its last step did beyond its end: it is that much shorter next time, so
  // that phases of a few steps take the right time in the mean.
  std::vector<double> beyond_;
};

// A phase turns into another (WorkChange).
class Change final : public SimWork {
 public:
  explicit Change(const Workload& workload) : workload_(workload), now_(workload.phases.front()) {}

  bool working() const override { return true; }
  const OperatingPoint& at(std::size_t clock) const override { return now_.points[clock]; }
  std::optional<double> drift() const override {
    return workload_.tabled ? std::nullopt : std::optional(1.0);
  }
  void work(double done, double) override {
    done_ += done;
    const double share = change_share(*workload_.change, done_);
    if (share - share_ < kLeastChange && (share < 1 || share_ >= 1)) return;
    share_ = share;
    now_ = mixture(workload_.phases.front(), workload_.phases.back(), share);
  }
  void wait(double) override {}

 private:
  static constexpr double kLeastChange = 0.001;  // of the share: mixing takes all clocks' time

  const Workload& workload_;
  Phase now_;
  double share_ = 0, done_ = 0;
};

}  // namespace

std::unique_ptr<SimWork> make_steps(const Workload& workload) {
  if (workload.change) return std::make_unique<Change>(workload);
  return std::make_unique<Steps>(workload);
}

}  // namespace derate
