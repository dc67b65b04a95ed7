// `derate sim job llm`: an engine that serves a language model on a served GPU, and its page of
// metrics over HTTP, with the names and edges of vLLM's.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "command_options.h"
#include "fakenvml/sim_client.h"
#include "service/http/http_server.h"

namespace derate::cli {

inline constexpr const char* kEngineWorkload = "llm";

// The request that begins it. Errors: invalid_argument for a burst that is none.
Result<fakenvml::Request> engine_request(const SimJobOptions& options, int gpu);

// The page, as vLLM would serve it of these counts.
std::string engine_page(const fakenvml::EngineNow& now, const std::string& model);

// Serves /metrics at that loopback address until it goes; `client` has begun the engine, and with
// `clock` outlives it. Errors: those of listen_loopback().
Result<std::unique_ptr<HttpServer>> serve_engine(const std::string& address,
                                                 fakenvml::SimClient& client,
                                                 const std::string& model, Clock& clock);

}  // namespace derate::cli
