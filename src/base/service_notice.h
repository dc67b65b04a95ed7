// Notices of a service to systemd ("READY=1", "WATCHDOG=1") that never block: sd_notify(3) blocks
// if nobody reads its socket.
#pragma once

#include <string>
#include <string_view>

namespace derate {

// Sends a datagram to $NOTIFY_SOCKET. False if it was not sent, for example because the socket's
// queue is full. True if $NOTIFY_SOCKET is not set.
bool notify_service(std::string_view state);

// Sends the notices of a service. A notice that could not be sent is sent with the next one.
class ServiceNotices {
 public:
  // `status`: the line that `systemctl status` shows; empty: none.
  void ready(std::string_view status = {}) {
    owed_ = "READY=1";
    if (!status.empty()) owed_ += "\nSTATUS=" + std::string(status);
    send_owed();
  }
  void alive() {
    send_owed();
    (void)notify_service("WATCHDOG=1");
  }
  // Sends the notice that could not be sent before. False: it still cannot be sent.
  bool send_owed() {
    if (!owed_.empty() && notify_service(owed_)) owed_.clear();
    return owed_.empty();
  }

 private:
  std::string owed_;
};

}  // namespace derate
