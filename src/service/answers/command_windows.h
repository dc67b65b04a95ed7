// Windows of energy of one command that this process starts, on a socket of the command's own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/answers/energy_service.h"
#include "service/answers/request_lines.h"
#include "service/transport/control_socket.h"

namespace derate {

class CommandWindows {
 public:
  // Programs find the socket by this variable, which the command gets (clients/python,
  // src/wire/derate_client.h).
  static constexpr const char* kVariable = "DERATE_CLIENT_SOCKET";

  // `max_gap`: a reading of power counts for that long. `clock` outlives it.
  CommandWindows(Clock& clock, Duration max_gap) : service_(clock, router_, max_gap) {}

  // Everyone may connect to the socket: the command may run as another user.
  // Errors: those of ControlServer::create().
  Result<void> open(const std::string& path, Clock& clock);
  bool is_open() const { return server_ != nullptr; }
  // The two below: only if it is open.
  int fd() const { return server_->fd(); }
  // "DERATE_CLIENT_SOCKET=/run/derate/energy-17.sock"
  std::string variable() const { return std::string(kVariable) + "=" + server_->path(); }

  // Takes in requests and gives answers that need no reading. UUIDs of GPUs whose counter is to be
  // read soon, so that a window is exact. Nothing if it is not open.
  std::vector<std::string> listen();
  // After readings: gives the answers that they have settled.
  void answer();

  EnergyService& service() { return service_; }
  const EnergyService& service() const { return service_; }

 private:
  CommandRouter router_;
  RequestLines lines_{router_};
  EnergyService service_;
  std::unique_ptr<ControlServer> server_;  // null: no program can be heard
};

}  // namespace derate
