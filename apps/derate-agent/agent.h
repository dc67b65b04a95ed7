// derate-agent without its command line: an HTTP server on a loopback address that passes on to
// derated what its rules allow.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent_rules.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "page_session.h"

namespace derate::agent {

struct AgentOptions {
  std::vector<std::string> sockets;  // of derated: the first on which somebody listens
  AgentRules rules = {};
  // Of the page of `derate ui`: its requests have this user's rights. If set, the port answers this
  // user and root alone.
  std::optional<PageSession> session = {};
  std::function<void()> session_begun = [] {};  // on the server's thread
};

class Agent {
 public:
  // Serves on threads of its own until it goes. `clock` lives as long as the process: calls that
  // hang outlive the agent.
  static Result<std::unique_ptr<Agent>> create(UniqueFd listening, Clock& clock,
                                               AgentOptions options);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

 private:
  struct State;
  explicit Agent(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace derate::agent
