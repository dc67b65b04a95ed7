#include "service/workloads/beat_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/safe_path.h"
#include "base/unix_address.h"
#include "service/transport/datagram_socket.h"
#include "signal/heartbeats.h"

namespace derate {

BeatServer::BeatServer(std::string path, DatagramSocket socket, Clock& clock)
    : path_(std::move(path)), socket_(std::move(socket)), clock_(clock) {}

BeatServer::~BeatServer() { ::unlink(path_.c_str()); }

Result<std::unique_ptr<BeatServer>> BeatServer::create(const std::string& path, Clock& clock,
                                                       PersonOf person,
                                                       std::shared_ptr<HangingThreads> hanging) {
  DatagramSocket socket =
      TRY(DatagramSocket::bind(path, std::move(person), {}, std::move(hanging)));
  return std::unique_ptr<BeatServer>(new BeatServer(path, std::move(socket), clock));
}

// The kernel has the time of day only. A beat is from the last moments, whatever that says.
Instant BeatServer::sent_at(const std::optional<timespec>& wall) const {
  const Instant now = clock_.now();
  if (!wall) return now;
  const WallTime sent{std::chrono::seconds(wall->tv_sec) + std::chrono::nanoseconds(wall->tv_nsec)};
  const Duration ago = clock_.wall_now() - sent;
  return now - std::clamp<Duration>(ago, Duration{}, std::chrono::seconds(1));
}

void BeatServer::serve(const Handler& handler) {
  for (int left = kMostARound; left > 0; --left) {
    char text[kLongestBeat + 1];
    const auto message = socket_.receive(text);
    if (!message) return;
    if (message->sender)
      handler(std::string_view(text, message->size),
              {message->sender->pid, message->sender->uid, sent_at(message->sent)});
  }
}

Result<void> send_beat(const std::string& path, std::string_view text) {
  const sockaddr_un address = TRY(address_of(path));
  TRY(check_socket_file(path).with("no beat is sent"));
  const UniqueFd socket = new_datagram_socket();
  if (!socket.valid()) return socket_error("cannot reach", path, errno);
  const ssize_t sent = ::sendto(socket.get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), sizeof address);
  if (sent < 0) return socket_error("cannot reach", path, errno);
  return {};
}

}  // namespace derate
