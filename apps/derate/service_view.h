// The view of services, engines that serve language models, in `derate status` and `derate top`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "api/service_requests.h"

namespace derate::cli {

// "kept", "BROKEN: 2.1 % late, 0.3 % by the clock", "not known"; empty: the service promises
// nothing. By the last ten minutes at most, and not known while less than one late token is allowed
// in so many.
std::string service_promise_text(const ServiceView& service);

// A table of the services of state.json, each with its trouble below it; empty: there are none.
std::string services_text(const nlohmann::ordered_json& services);

}  // namespace derate::cli
