#include "fakenvml/sim_client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/safe_path.h"

namespace derate::fakenvml {
namespace {

// The secure form: a program with more rights than its user does not go where they point.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

Error no_server(const std::string& directory, const char* why) {
  return {Errc::driver_not_loaded, "no simulated GPUs are served in " + directory + " (" + why +
                                       "): start them with 'derate sim serve'"};
}

Result<UniqueFd> connect_to(const std::string& directory) {
  // The folder of last resort is among those of everybody; another one is the user's word.
  if (directory == own_temporary_folder() + "/sim")
    if (const auto ours = check_way(socket_path(directory)); !ours.ok())
      return no_server(directory, ours.error().message.c_str());
  const std::string path = socket_path(directory);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return no_server(directory, "its name is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return no_server(directory, std::strerror(errno));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    return no_server(directory, std::strerror(errno));
  return fd;
}

Result<const State*> map_state(const std::string& directory) {
  const UniqueFd fd(::open(state_path(directory).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || ::fstat(fd.get(), &info) != 0)
    return no_server(directory, std::strerror(errno));
  if (info.st_size != static_cast<off_t>(sizeof(State)))
    return no_server(directory, "the server is of another version");
  void* memory = ::mmap(nullptr, sizeof(State), PROT_READ, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return no_server(directory, std::strerror(errno));
  const auto* state = static_cast<const State*>(memory);
  if (state->magic == kStateMagic && state->version == kStateVersion && state->gpus <= kGpusMax)
    return state;
  ::munmap(memory, sizeof(State));
  return no_server(directory, "the server is of another version");
}

bool exchange(int fd, const Request& request, Reply& reply) {
  ssize_t sent = 0, got = 0;
  do sent = ::send(fd, &request, sizeof request, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(sizeof request)) return false;
  do got = ::recv(fd, &reply, sizeof reply, 0);
  while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof reply) && reply.magic == kProtocolMagic;
}

}  // namespace

std::string default_directory() {
  if (auto given = variable("DERATE_SIM"); !given.empty()) return given;
  if (auto run = variable("DERATE_RUN_DIR"); !run.empty()) return run + "/sim";
  if (::geteuid() == 0) return "/run/derate/sim";
  if (auto xdg = variable("XDG_RUNTIME_DIR"); !xdg.empty()) return xdg + "/derate/sim";
  return own_temporary_folder() + "/sim";
}

std::string state_path(const std::string& directory) { return directory + "/state"; }
std::string socket_path(const std::string& directory) { return directory + "/socket"; }

Result<std::unique_ptr<SimClient>> SimClient::connect(const std::string& directory) {
  UniqueFd socket = TRY(connect_to(directory));
  const State* state = TRY(map_state(directory));
  std::unique_ptr<SimClient> client(new SimClient(directory, state, std::move(socket)));
  const auto hello = client->ask({});
  if (!hello || hello->code != 0) return no_server(directory, "it speaks another version");
  return client;
}

SimClient::SimClient(std::string directory, const State* state, UniqueFd socket)
    : directory_(std::move(directory)),
      state_(state),
      socket_(std::move(socket)),
      owner_(::getpid()) {}

SimClient::~SimClient() { ::munmap(const_cast<State*>(state_), sizeof(State)); }

// A child that shared its parent's socket would read its parent's replies, and the server knows a
// writer by the process that connected.
Result<void> SimClient::reconnect_after_fork() {
  if (owner_ == ::getpid()) return {};
  socket_ = TRY(connect_to(directory_));
  owner_ = ::getpid();
  return {};
}

std::optional<Reply> SimClient::ask(const Request& request) {
  const std::scoped_lock lock(mutex_);
  Reply reply;
  if (!gone_ && reconnect_after_fork().ok() && exchange(socket_.get(), request, reply))
    return reply;
  gone_ = true;
  return std::nullopt;
}

bool SimClient::alive() {
  constexpr std::int64_t kStandstillNs = 500'000'000;
  if (gone_ || state_->closed.load(std::memory_order_acquire) != 0) return false;
  const std::uint64_t steps = state_->steps.load(std::memory_order_relaxed);
  const std::int64_t now = clock_.now().time_since_epoch().count();
  if (steps != seen_steps_.load(std::memory_order_relaxed)) {
    seen_steps_ = steps;
    seen_at_ns_ = now;
    return true;
  }
  if (now - seen_at_ns_ < kStandstillNs) return true;
  seen_at_ns_ = now;
  char byte = 0;
  const std::scoped_lock lock(mutex_);
  if (::recv(socket_.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) gone_ = true;
  return !gone_;
}

}  // namespace derate::fakenvml
