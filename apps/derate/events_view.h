// Events, and the reason for a GPU's clock (`derate events`, `derate why`), as people read them.
#pragma once

#include <cstddef>
#include <string>

#include "api/history_requests.h"

namespace derate::cli {

// A line: time, severity, GPU, name, sentence; of several that are folded, since when.
std::string event_line(const EventView& event);
// "3,037 events: 12 warnings, 3 errors", where lines stand for several; else empty.
std::string counts_line(const EventsAnswer& answer);

// The moment, the decision in force and the changes before it; the table is at most so wide.
std::string why_text(const WhyAnswer& answer, std::size_t width);

// "sw_power_cap, hw_thermal_slowdown": NVML's words for the bits; "none".
std::string throttle_text(std::int64_t bits);

}  // namespace derate::cli
