// Energy for people: in kWh, and Wh where that is little. Every page of text has it from here.
#pragma once

#include <string>

namespace derate {

// Of joules: "0 Wh", "0.0361 Wh", "8.25 Wh", "812 Wh", "2.47 kWh", "2.00 MWh".
std::string kwh_text(double joules);

}  // namespace derate
