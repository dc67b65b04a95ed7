// The server of simulated GPUs: a SimMachine behind a socket, its state in a file that clients map.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "fakenvml/sim_machine.h"

namespace derate::fakenvml {

struct ServerOptions {
  std::string directory;
  std::vector<const SimChip*> chips;  // one a GPU
  std::uint64_t seed = 1;
  std::optional<std::string> mig;          // as MachineOptions has it
  double speed = 1;                        // simulated seconds a second of the clock
  std::vector<std::uint32_t> minors = {};  // as MachineOptions has them
};

class SimServer {
 public:
  // Makes the directory if it is not there. Errors: invalid_argument when another server has it
  // (the message names its process) or the
  // MIG layout is none of a chip, not_supported for a chip without MIG, no_permission, io.
  static Result<std::unique_ptr<SimServer>> create(const ServerOptions& options, Clock& clock);
  SimServer(const SimServer&) = delete;
  SimServer& operator=(const SimServer&) = delete;
  ~SimServer();  // takes its files away

  // Brings the GPUs to the clock's time.
  void advance();
  // Answers what clients ask, for as long as nothing comes for `timeout`.
  void answer(Duration timeout);

  const SimMachine& machine() const { return *machine_; }

 private:
  struct Client {
    UniqueFd socket;
    Peer peer;
  };

  SimServer(const ServerOptions& options, Clock& clock) : options_(options), clock_(clock) {}
  Result<void> open_lock();
  Result<void> open_state();
  Result<void> open_socket();
  void accept_client();
  bool serve_client(Client& client);

  ServerOptions options_;
  Clock& clock_;
  Instant start_{};
  UniqueFd lock_, listener_;
  State* state_ = nullptr;
  std::unique_ptr<SimMachine> machine_;
  std::list<Client> clients_;
  std::uint64_t last_connection_ = 0;
};

}  // namespace derate::fakenvml
