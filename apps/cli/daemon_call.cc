#include "daemon_call.h"

#include <fmt/format.h>

#include "apps/common/paths.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "service/control_socket.h"

namespace derate::cli {
namespace {

constexpr Duration kDaemonPatience = std::chrono::seconds(10);

// What the daemon meant by its exit code; several mean the same to a caller.
Errc errc_of(int code) {
  for (const Errc each : {Errc::invalid_argument, Errc::not_found, Errc::not_supported,
                          Errc::no_permission, Errc::busy, Errc::bad_data, Errc::gpu_stuck})
    if (exit_code_of(each) == code) return each;
  return Errc::io;
}

}  // namespace

Result<DaemonLine> find_daemon() {
  const auto sockets = client_sockets();
  for (const std::string& socket : sockets) {
    const auto answer = control_call(socket, R"({"command":"gpus"})", kDaemonPatience);
    if (answer.ok()) return DaemonLine{socket};
    if (answer.error().code != Errc::not_found) return answer.error();
  }
  return Error{Errc::not_found,
               fmt::format("derated is not running: nobody listens on '{}'", sockets.back())};
}

Result<Json> ask(const DaemonLine& line, const std::string& request) {
  const Json answer = parse_json(TRY(control_call(line.socket, request, kDaemonPatience)));
  if (!answer.is_object()) return Error{Errc::io, "the daemon's answer is not understood"};
  if (answer.value("ok", false)) return answer;
  return Error{errc_of(answer.value("exit_code", 1)), answer.value("error", "refused")};
}

}  // namespace derate::cli
