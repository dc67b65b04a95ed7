// The stand-in of a DCGM host engine behind a socket: a process of its own, which can be killed or
// stopped as a real one can.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "fakedcgm/host_engine.h"
#include "fakedcgm/wire.h"

namespace derate::fakedcgm {

class EngineServer {
 public:
  // Errors: those of listen_at().
  static Result<std::unique_ptr<EngineServer>> create(const std::string& address,
                                                      HostEngine& engine);

  // Answers clients and measures, for as long as nothing comes for `timeout`.
  void serve(Duration timeout, const Clock& clock);

 private:
  struct Client {
    UniqueFd socket;
    std::uint64_t number = 0;
    Inbox inbox;
  };
  EngineServer(UniqueFd listener, HostEngine& engine)
      : listener_(std::move(listener)), engine_(engine) {}
  void accept_clients();
  bool answer(Client& client);

  UniqueFd listener_;
  HostEngine& engine_;
  std::list<Client> clients_;
  std::uint64_t last_client_ = 0;
};

}  // namespace derate::fakedcgm
