// Asking an HTTP server, as a rule on a unix socket: what `derate` and derate-agent do.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/http/http_message.h"

namespace derate {

struct HttpAsk {
  std::string method = "GET";
  std::string target;  // with its query, percent-encoded
  std::string host = "localhost";
  HttpFields fields = {};
  std::string body = {};
  std::size_t most_bytes = 64u << 20;  // of an answer
};

// The bytes of the request's head as a server counts them, with the fields that http_call() adds.
std::size_t head_bytes(const HttpAsk& ask);

// Sends it to the server at `path` and waits for the whole answer. Errors: not_found when nobody
// listens there, no_permission, io, gpu_stuck when no answer comes in time.
Result<HttpResponse> http_call(const std::string& path, const HttpAsk& ask, Duration patience);

// The same over a connection that is there: a stream socket that does not block. `where` is what
// errors name it by.
Result<HttpResponse> http_call_on(UniqueFd socket, const std::string& where, const HttpAsk& ask,
                                  Duration patience);

// An answer that comes in pieces and may never end. `take` gets each as it comes, and an empty one
// when it begins; false ends it.
// `stop_fd` ends it when it can be read (-1: nothing does). Errors: as above; an answer whose
// status is not 200 is given whole.
Result<HttpResponse> http_stream(const std::string& path, const HttpAsk& ask, int stop_fd,
                                 const std::function<bool(std::string_view piece)>& take);

}  // namespace derate
