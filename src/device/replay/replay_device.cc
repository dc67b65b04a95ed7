#include "device/replay/replay_device.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"

namespace derate {
namespace {

constexpr Duration kActivityWindow = std::chrono::milliseconds(100);

}  // namespace

ReplayDevice::ReplayDevice(Trace trace, const Clock& clock)
    : trace_(std::move(trace)), clock_(clock), start_(clock.now()) {
  CHECK(trace_.samples.empty() || trace_.samples.front().time == Instant{});
  trace_.capability.process_list = false;
}

Duration ReplayDevice::duration() const {
  return trace_.samples.empty() ? Duration{} : trace_.samples.back().time.time_since_epoch();
}

Result<Sample> ReplayDevice::read(const ReadPlan& plan) {
  const Duration elapsed = clock_.now() - start_;
  if (trace_.samples.empty() || elapsed > duration())
    return Error{Errc::not_found,
                 fmt::format("the trace ends after {:.3f} s", seconds(duration()))};
  for (; next_ < trace_.samples.size(); ++next_) {
    const Sample& reached = trace_.samples[next_];
    if (reached.time.time_since_epoch() > elapsed) break;
    if (reached.energy) {
      energy_ = reached.energy;
      energy_time_ = reached.time;
    }
    if (reached.tenants) {
      tenants_ = reached.tenants;
      tenants_time_ = reached.time;
    }
    if (reached.activity == Activity{}) continue;
    activity_ = reached.activity;
    activity_time_ = reached.time;
  }
  Sample sample = trace_.samples[next_ - 1];
  const bool current = sample.time - activity_time_ <= kActivityWindow;
  sample.energy = plan.energy ? energy_ : std::nullopt;
  sample.tenants = plan.processes ? tenants_ : std::nullopt;
  sample.activity = plan.activity && current ? activity_ : Activity{};
  sample.source = SampleSource::replayed;
  for (const auto& [field, row] :
       {std::pair(Field::energy, energy_time_), std::pair(Field::tenants, tenants_time_),
        std::pair(Field::activity, activity_time_)})
    if (row != sample.time && has(sample, field))
      sample.read_apart.push_back(
          {field, start_ + row.time_since_epoch(), to_string(SampleSource::replayed)});
  sample.time = start_ + sample.time.time_since_epoch();
  return sample;
}

Result<std::vector<GpuProcess>> ReplayDevice::processes() {
  return Error{Errc::not_supported, "a trace does not hold processes"};
}

}  // namespace derate
