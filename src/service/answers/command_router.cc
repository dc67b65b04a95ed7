#include "service/answers/command_router.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"

namespace derate {

CommandRouter::CommandRouter(Role granted) : granted_(granted) {}
CommandRouter::~CommandRouter() = default;

const CommandRouter::Handled* CommandRouter::find(const Operation& operation) const {
  const auto at = std::find_if(handlers_.begin(), handlers_.end(),
                               [&](const Handled& each) { return each.operation == &operation; });
  return at == handlers_.end() ? nullptr : &*at;
}

bool CommandRouter::has(const Operation& operation) const { return find(operation) != nullptr; }

Error CommandRouter::unknown(const std::string& name) const {
  std::string known;
  for (const auto& [each, handler] : handlers_)
    known += (known.empty() ? "" : ", ") + std::string(each->name);
  return {Errc::invalid_argument, fmt::format("command '{}': allowed are {}", name, known)};
}

CommandRouter::Answer CommandRouter::handle(const Asked& asked) const {
  const Handled* const found = find(*asked.operation);
  if (found == nullptr) return Answer(unknown(asked.operation->name));
  handled_(*asked.operation);
  Answer out = found->handler(asked);
  if (out && !out->ok()) refused(asked.peer, out->error());
  return out;
}

void CommandRouter::refused(const Peer& peer, const Error& why) const {
  if (why.code == Errc::no_permission) refused_(peer, why.message);
}

void CommandRouter::closed(const Peer& peer) const {
  for (const auto& hook : hooks_) hook(peer);
}

void CommandRouter::send_late(std::uint64_t from, Receiver to) { receivers_[from] = std::move(to); }

void CommandRouter::later(std::uint64_t connection, const Result<Json>& answer) const {
  const auto after = receivers_.upper_bound(connection);
  if (after != receivers_.begin()) std::prev(after)->second(connection, answer);
}

}  // namespace derate
