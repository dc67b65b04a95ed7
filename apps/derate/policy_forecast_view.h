// The table of `derate policy forecast`: clocks, savings and losses under other promises, as people
// read it.
#pragma once

#include <string>

#include "api/requests.h"

namespace derate::cli {

// A heading and a table; a sentence where there is none.
std::string forecast_text(const ForecastAnswer& answer);

}  // namespace derate::cli
