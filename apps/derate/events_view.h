// Events, and the reason for a GPU's clock (`derate events`, `derate why`), as people read them.
#pragma once

#include <cstddef>
#include <string>

#include "api/history_requests.h"

namespace derate::cli {

// A line: time, severity, GPU, name, sentence.
std::string event_line(const EventView& event);

// The moment, the decision in force and the changes before it; the table is at most so wide.
std::string why_text(const WhyAnswer& answer, std::size_t width);

// "sw_power_cap, hw_thermal_slowdown": NVML's words for the bits; "none".
std::string throttle_text(std::int64_t bits);

}  // namespace derate::cli
