// Notices of a service to systemd ("READY=1", "WATCHDOG=1"), without waiting: sd_notify(3)
// waits for as long as nobody reads its socket.
#pragma once

#include <string>
#include <string_view>

namespace derate {

// A datagram to $NOTIFY_SOCKET. False if it was not sent, as when the socket's queue is full; true
// also where there is no such socket.
bool notify_service(std::string_view state);

// The notices of a service: what could not be sent is sent with the next one.
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
  // Tries again where something could not be sent. False: it still cannot.
  bool send_owed() {
    if (!owed_.empty() && notify_service(owed_)) owed_.clear();
    return owed_.empty();
  }

 private:
  std::string owed_;
};

}  // namespace derate
