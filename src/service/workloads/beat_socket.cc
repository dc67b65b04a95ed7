#include "service/workloads/beat_socket.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/safe_path.h"
#include "base/unix_address.h"
#include "service/transport/datagram_socket.h"
#include "signal/heartbeats.h"

namespace derate {
namespace {

UniqueFd epoll_over(int fd) {
  UniqueFd out(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (out.valid() && ::epoll_ctl(out.get(), EPOLL_CTL_ADD, fd, &event) != 0) return {};
  return out;
}

// The folder of users' own sockets, without those of a daemon that has ended.
Result<void> clear_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  if (!error) std::filesystem::create_directory(folder, error);
  if (!error && ::chmod(folder.c_str(), 0755) == 0) return {};
  return socket_error("cannot make", folder, error ? error.value() : errno);
}

}  // namespace

BeatServer::BeatServer(std::string path, DatagramSocket socket, UniqueFd ready, Clock& clock,
                       PersonOf person, std::shared_ptr<HangingThreads> hanging)
    : path_(std::move(path)),
      socket_(std::move(socket)),
      ready_(std::move(ready)),
      clock_(clock),
      person_(std::move(person)),
      hanging_(std::move(hanging)) {}

BeatServer::~BeatServer() {
  ::unlink(path_.c_str());
  for (const auto& [user, own] : own_) ::unlink(own.path.c_str());
}

Result<std::unique_ptr<BeatServer>> BeatServer::create(const std::string& path, Clock& clock,
                                                       PersonOf person,
                                                       std::shared_ptr<HangingThreads> hanging) {
  DatagramSocket socket = TRY(DatagramSocket::bind(path, person, {}, hanging));
  UniqueFd ready = epoll_over(socket.fd());
  if (!ready.valid()) return socket_error("cannot wait for", path, errno);
  return std::unique_ptr<BeatServer>(new BeatServer(path, std::move(socket), std::move(ready),
                                                    clock, std::move(person), std::move(hanging)));
}

void BeatServer::close_unwanted() {
  const Instant now = clock_.now();
  std::erase_if(own_, [&](const auto& each) {
    if (now - each.second.wanted <= kKeepUser) return false;
    ::unlink(each.second.path.c_str());
    // Another thread's copy of the descriptor would keep the entry beyond the close.
    (void)::epoll_ctl(ready_.get(), EPOLL_CTL_DEL, each.second.socket.fd(), nullptr);
    return true;
  });
}

bool BeatServer::has_place(uid_t user) const {
  const uid_t person = person_(user);
  const auto same = std::count_if(own_.begin(), own_.end(),
                                  [&](const auto& each) { return person_(each.first) == person; });
  return own_.size() < kMostUsers && static_cast<std::size_t>(same) < kMostOfPerson;
}

Result<void> BeatServer::open_own(uid_t user) {
  const std::filesystem::path run_folder = std::filesystem::path(path_).parent_path();
  const std::string path = own_beat_socket(run_folder, user);
  if (own_.empty()) TRY(clear_folder(run_folder / "beats"));
  OwnSocket own{.socket = TRY(DatagramSocket::bind(path, person_, {}, hanging_, user)),
                .path = path};
  epoll_event event{.events = EPOLLIN, .data = {}};
  if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, own.socket.fd(), &event) != 0)
    return socket_error("cannot wait for", path, errno);
  own_.emplace(user, std::move(own));
  return {};
}

Result<void> BeatServer::serve_users(const std::set<uid_t>& users) {
  close_unwanted();
  Result<void> out;
  for (const uid_t user : users) {
    if (!own_.contains(user) && has_place(user))
      if (auto opened = open_own(user); !opened.ok() && out.ok()) out = std::move(opened);
    if (const auto found = own_.find(user); found != own_.end())
      found->second.wanted = clock_.now();
  }
  return out;
}

// The kernel has the time of day only. A beat is from the last moments, whatever that says.
Instant BeatServer::sent_at(const std::optional<timespec>& wall) const {
  const Instant now = clock_.now();
  if (!wall) return now;
  const WallTime sent{std::chrono::seconds(wall->tv_sec) + std::chrono::nanoseconds(wall->tv_nsec)};
  const Duration ago = clock_.wall_now() - sent;
  return now - std::clamp<Duration>(ago, Duration{}, std::chrono::seconds(1));
}

void BeatServer::take(DatagramSocket& socket, int most, const Handler& handler) {
  for (int left = most; left > 0; --left) {
    char text[kLongestBeat + 1];
    const auto message = socket.receive(text);
    if (!message) return;
    if (message->sender)
      handler(std::string_view(text, message->size),
              {message->sender->pid, message->sender->uid, sent_at(message->sent)});
  }
}

void BeatServer::serve(const Handler& handler) {
  for (auto& [user, own] : own_) take(own.socket, kMostOfUserARound, handler);
  take(socket_, kMostARound, handler);
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
