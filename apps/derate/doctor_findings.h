// The checks of `derate doctor`: of one GPU, and what a check adds to the findings.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "device/telemetry_source.h"
#include "doctor_view.h"

namespace derate::cli {

using DoctorFindings = std::vector<DoctorFinding>;

inline constexpr const char* kNewerDriver = "a newer NVIDIA driver may offer it";

// What a check found: the words for either outcome, and what to do about the bad one.
struct DoctorCheck {
  std::string what, if_good, if_not, remedy;
  std::string brief = {};
  DoctorLevel otherwise = DoctorLevel::limit;
};

void add(DoctorFindings& findings, bool good, const DoctorCheck& check);

// The GPU's sensors, clocks, limits, settings of other tools and processes, and whether a real card
// of its product was tested.
DoctorFindings check_gpu(TelemetrySource& source);

// The CPU time that each kind of call to its driver takes; it needs two seconds.
DoctorFinding measure_calls(TelemetrySource& source, Clock& clock);

}  // namespace derate::cli
