// What systemd is sent about a service ("READY=1", "WATCHDOG=1"), without waiting: sd_notify(3)
// waits for as long as nobody reads its socket.
#pragma once

#include <string_view>

namespace derate {

// A datagram to $NOTIFY_SOCKET. False if it was not sent, as when the socket's queue is full; true
// also where there is no such socket.
bool notify_service(std::string_view state);

// The notices of a service: what could not be sent is sent with the next one.
class ServiceNotices {
 public:
  void ready() { ready_owed_ = !notify_service("READY=1"); }
  void alive() {
    if (ready_owed_) ready();
    (void)notify_service("WATCHDOG=1");
  }

 private:
  bool ready_owed_ = false;
};

}  // namespace derate
