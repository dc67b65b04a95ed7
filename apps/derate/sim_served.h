// Shared functions of the `derate sim` verbs that talk to a server: connection, choice of GPUs,
// requests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "command_options.h"
#include "fakenvml/sim_client.h"

namespace derate::cli {

std::string sim_directory(const SimDirectory& options);

// Errors: driver_not_loaded when nothing is served there.
Result<std::unique_ptr<fakenvml::SimClient>> connect_sim(const SimDirectory& options);

// Those of the served GPUs that `choice` names (select_gpus); all when it is empty.
Result<std::vector<int>> served_gpus(const fakenvml::SimClient& client, const std::string& choice);

// The reply, or the server's refusal as an error.
Result<fakenvml::Reply> ask_sim(fakenvml::SimClient& client, const fakenvml::Request& request);

}  // namespace derate::cli
