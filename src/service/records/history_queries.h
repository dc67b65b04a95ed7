// Answers queries of the history, savings, events and why (api/history_requests.h), read from the
// history's file: on a thread that may wait for a disk.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "api/history_requests.h"
#include "base/result.h"
#include "base/units.h"
#include "core/gpu_id.h"

namespace derate {

// The answer's fields beside ok. `known`: the GPUs that are there now, which may be named by index,
// UUID or PCI bus id; others, and all where none is known, by their whole UUID.
// Errors: invalid_argument, naming what is allowed; not_found where nothing was ever kept, or no
// GPU has such a name; no_permission, busy, io, bad_data.
Result<nlohmann::ordered_json> answer_history(const std::string& file, const HistoryRead& request,
                                              WallTime now, std::span<const GpuId> known = {});
// Of the hours that begin in the time that is asked for.
Result<nlohmann::ordered_json> answer_savings(const std::string& file, const SavingsRead& request,
                                              WallTime now, std::span<const GpuId> known = {});
Result<nlohmann::ordered_json> answer_events(const std::string& file, const EventsRead& request,
                                             WallTime now, std::span<const GpuId> known = {});
Result<nlohmann::ordered_json> answer_why(const std::string& file, const WhyRead& request,
                                          WallTime now, std::span<const GpuId> known = {});

// The GPUs that events of a file name, each with the index that it had last: who reads it where no
// daemon runs can name them as everywhere. Errors: as read_events() has them.
Result<std::vector<GpuId>> gpus_of_history(const std::string& file);

}  // namespace derate
