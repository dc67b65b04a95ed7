#include "fakenvml/sim_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <new>

#include "base/safe_path.h"
#include "base/text.h"
#include "base/unix_address.h"
#include "device/sim/sim_mig.h"
#include "fakenvml/sim_client.h"

namespace derate::fakenvml {
namespace {

namespace fs = std::filesystem;

Error system_error(const std::string& path) {
  const Errc code = errno == EACCES || errno == EPERM ? Errc::no_permission : Errc::io;
  return {code, fmt::format("{}: {}", path, std::strerror(errno))};
}

// Everybody may look, as at real GPUs; who may write is the machine's to say.
constexpr mode_t kReadable = 0644;
constexpr mode_t kConnectable = 0666;

}  // namespace

Result<std::unique_ptr<SimServer>> SimServer::create(const ServerOptions& options, Clock& clock) {
  for (const SimChip* chip : options.chips)
    if (options.mig) TRY(make_instances(*chip, *options.mig));
  std::unique_ptr<SimServer> server(new SimServer(options, clock));
  if (const std::string last_resort = own_temporary_folder();
      fs::path(options.directory).parent_path() == last_resort)
    TRY(make_own_folder(last_resort, S_IRWXG | S_IRWXO));
  TRY(make_folders(options.directory));
  TRY(server->open_lock());
  TRY(server->open_state());
  TRY(server->open_socket());
  return server;
}

// The lock goes with the process, however it ends; the file says whose it is.
Result<void> SimServer::open_lock() {
  const std::string path = options_.directory + "/lock";
  lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kReadable));
  if (!lock_.valid()) return system_error(path);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    const std::string pid(trim(read_file(path).ok() ? *read_file(path) : std::string()));
    lock_ = UniqueFd();
    return Error{Errc::invalid_argument, fmt::format("{}: served already, by process {}",
                                                     options_.directory, pid.empty() ? "?" : pid)};
  }
  const std::string pid = fmt::format("{}\n", ::getpid());
  if (::ftruncate(lock_.get(), 0) != 0 ||
      ::write(lock_.get(), pid.data(), pid.size()) != static_cast<ssize_t>(pid.size()))
    return system_error(path);
  return {};
}

// Clients of a server that was killed still map its file: a new one gets a new file.
Result<void> SimServer::open_state() {
  const std::string path = state_path(options_.directory), fresh = path + ".new";
  ::unlink(path.c_str());
  ::unlink(fresh.c_str());
  const UniqueFd fd(::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, kReadable));
  if (!fd.valid() || ::ftruncate(fd.get(), sizeof(State)) != 0) return system_error(fresh);
  void* memory = ::mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return system_error(fresh);
  state_ = new (memory) State();
  state_->pid = ::getpid();
  start_ = clock_.now();
  using std::chrono::duration_cast, std::chrono::microseconds;
  const auto epoch = duration_cast<microseconds>(clock_.wall_now().time_since_epoch());
  machine_ = std::make_unique<SimMachine>(
      MachineOptions{.chips = options_.chips,
                     .seed = options_.seed,
                     .epoch_us = static_cast<std::uint64_t>(epoch.count()),
                     .owner = ::geteuid(),
                     .mig = options_.mig,
                     .minors = options_.minors},
      *state_);
  if (::rename(fresh.c_str(), path.c_str()) != 0) return system_error(path);
  return {};
}

Result<void> SimServer::open_socket() {
  const std::string path = socket_path(options_.directory);
  const sockaddr_un address = TRY(address_of(path));
  ::unlink(path.c_str());
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid() ||
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::chmod(path.c_str(), kConnectable) != 0 || ::listen(listener_.get(), 64) != 0)
    return system_error(path);
  return {};
}

SimServer::~SimServer() {
  machine_.reset();  // tells the clients
  if (state_ != nullptr) {
    ::munmap(static_cast<void*>(state_), sizeof(State));
    ::unlink(state_path(options_.directory).c_str());
  }
  if (listener_.valid()) ::unlink(socket_path(options_.directory).c_str());
  if (lock_.valid()) ::unlink((options_.directory + "/lock").c_str());
}

void SimServer::advance() {
  const double passed = seconds(clock_.now() - start_) * options_.speed;
  // Rounded to the microsecond: a step is due on the clock's tick that it ends at.
  machine_->advance_to(std::chrono::microseconds(std::llround(passed * 1e6)));
}

void SimServer::accept_client() {
  UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return;
  clients_.push_back({std::move(fd), {++last_connection_, who.pid, who.uid}});
}

// False when the client is gone or talks nonsense.
bool SimServer::serve_client(Client& client) {
  Request request;
  // One byte more than a request: a longer packet is told from a whole one.
  char packet[sizeof request + 1];
  const ssize_t got = ::recv(client.socket.get(), packet, sizeof packet, MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got != static_cast<ssize_t>(sizeof request)) return false;
  std::memcpy(static_cast<void*>(&request), packet, sizeof request);
  const Outcome outcome = machine_->handle(request, client.peer);
  if (outcome.kill) {
    ::kill(client.peer.pid, SIGKILL);
    return false;
  }
  const auto& reply = outcome.reply;
  return ::send(client.socket.get(), &reply, sizeof reply, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof reply);
}

void SimServer::answer(Duration timeout) {
  std::vector<pollfd> polls{{listener_.get(), POLLIN, 0}};
  for (const Client& client : clients_) polls.push_back({client.socket.get(), POLLIN, 0});
  const auto nanos = std::max<std::int64_t>(0, timeout.count());
  const timespec wait{nanos / 1'000'000'000, nanos % 1'000'000'000};
  if (::ppoll(polls.data(), polls.size(), &wait, nullptr) <= 0) return;
  std::size_t at = 1;
  for (auto client = clients_.begin(); client != clients_.end();) {
    const bool ready = polls[at++].revents != 0;
    if (!ready || serve_client(*client)) {
      ++client;
      continue;
    }
    const std::uint64_t connection = client->peer.connection;
    client = clients_.erase(client);
    machine_->forget(connection, clients_.empty());
  }
  if (polls[0].revents != 0) accept_client();
}

}  // namespace derate::fakenvml
