// A clock control that remembers what it was told, and the decisions that tests give it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/decision.h"
#include "device/clock_control.h"

namespace derate {

class TestControl final : public ClockControl {
 public:
  Result<void> lock_sm_clock(Megahertz lowest, Megahertz highest) override {
    calls.push_back(std::to_string(static_cast<int>(lowest.value())) + ".." +
                    std::to_string(static_cast<int>(highest.value())));
    return answer();
  }
  Result<void> reset_sm_clock() override {
    calls.push_back("reset");
    return answer();
  }

  Result<void> lock_memory_clock(Megahertz lowest, Megahertz highest) override {
    calls.push_back("memory " + std::to_string(static_cast<int>(lowest.value())) + ".." +
                    std::to_string(static_cast<int>(highest.value())));
    return refuse_memory ? Error{refused_memory_with, "refused"} : answer();
  }
  Result<void> reset_memory_clock() override {
    calls.push_back("memory reset");
    return answer();
  }
  Result<void> set_power_limit(Watts limit) override {
    calls.push_back(std::to_string(static_cast<int>(limit.value())) + " W");
    if (!refuse) now.power_limit = limit;
    return answer();
  }
  Result<GpuSettings> settings() override { return now; }

  std::vector<std::string> calls;
  GpuSettings now{Watts(300), {}, {}};
  bool refuse = false, refuse_memory = false;
  Errc refused_with = Errc::no_permission, refused_memory_with = Errc::not_supported;
  std::function<void()> on_next_call;  // called once

 private:
  Result<void> answer() {
    if (on_next_call) std::exchange(on_next_call, nullptr)();
    if (refuse) return Error{refused_with, "refused"};
    return {};
  }
};

inline Decision set(double mhz) { return Decision::set(Megahertz(mhz), {"wanted", {}}); }
inline const Decision kHold = Decision::hold({"holding", {}});
inline const Decision kRelease = Decision::release({"released", {}});

}  // namespace derate
