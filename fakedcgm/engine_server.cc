#include "fakedcgm/engine_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <vector>

#include "base/json.h"

namespace derate::fakedcgm {

Result<std::unique_ptr<EngineServer>> EngineServer::create(const std::string& address,
                                                           HostEngine& engine) {
  return std::unique_ptr<EngineServer>(new EngineServer(TRY(listen_at(address)), engine));
}

void EngineServer::serve(Duration timeout, const Clock& clock) {
  std::vector<pollfd> waits = {{listener_.get(), POLLIN, 0}};
  for (const Client& client : clients_) waits.push_back({client.socket.get(), POLLIN, 0});
  const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
  ::poll(waits.data(), waits.size(), static_cast<int>(milliseconds));
  const auto now = clock.wall_now().time_since_epoch();
  engine_.measure(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  std::size_t at = 1;
  for (auto client = clients_.begin(); client != clients_.end() && at < waits.size(); ++at) {
    const bool stays = waits[at].revents == 0 || answer(*client);
    if (!stays) engine_.forget(client->number);
    client = stays ? std::next(client) : clients_.erase(client);
  }
  if (waits.front().revents != 0) accept_clients();
}

// A client's socket blocks: its answers are small, and who does not read them is on this machine.
void EngineServer::accept_clients() {
  while (true) {
    UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.get() < 0) return;
    clients_.push_back({std::move(socket), ++last_client_, {}});
  }
}

bool EngineServer::answer(Client& client) {
  if (!client.inbox.read_from(client.socket.get())) return false;
  while (const auto request = client.inbox.take())
    if (!send_packet(client.socket.get(), engine_.handle(client.number, *request))) return false;
  return true;
}

}  // namespace derate::fakedcgm
