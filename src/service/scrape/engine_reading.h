// A reading of an engine's metrics as it travels from derate-agent to the daemon, and back.
#pragma once

#include <string>

#include "api/service_requests.h"
#include "base/result.h"
#include "core/serving_state.h"
#include "signal/serving/read_engine.h"

namespace derate {

// The reading as it travels. The caller sets its age.
ServiceReading reading_of(const std::string& service, const EngineReading& read);

// The state, without its time and run. Errors: bad_data for what no engine can show: a number below
// 0 or above 2^53, counts that fall from edge to edge, edges that do not ascend, more than
// kMostEdges of them.
inline constexpr std::size_t kMostEdges = 200;
Result<ServingState> state_of(const ServiceReading& reading);

}  // namespace derate
