#include "service/answers/command_router.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/json_limits.h"

namespace derate {

std::string answer_text(const Result<Json>& answer) {
  Json out = {{"ok", answer.ok()}};
  if (answer.ok()) {
    out.update(*answer);
  } else {
    out["error"] = answer.error().message;
    out["exit_code"] = exit_code_of(answer.error().code);
    out["code"] = word_of(answer.error().code);
  }
  return json_text(out);
}

CommandRouter::CommandRouter(Role granted) : granted_(granted) {}
CommandRouter::~CommandRouter() = default;

void CommandRouter::add(const Operation& operation,
                        std::function<Answer(const Json& request, const Peer& peer)> handler) {
  handlers_.push_back({&operation, std::move(handler)});
}

void CommandRouter::later(std::uint64_t connection, const Result<Json>& answer) {
  if (connection >= elsewhere_from_)
    elsewhere_(connection, answer_text(answer));
  else
    late_.emplace_back(connection, answer_text(answer));
}

bool CommandRouter::has(const Operation& operation) const {
  return std::any_of(handlers_.begin(), handlers_.end(),
                     [&](const Handled& each) { return each.operation == &operation; });
}

void CommandRouter::send_late(std::uint64_t from,
                              std::function<void(std::uint64_t, std::string)> to) {
  elsewhere_from_ = from;
  elsewhere_ = std::move(to);
}

Error CommandRouter::unknown(const std::string& name, Role granted) const {
  const Operation* operation = find_operation(name);
  if (operation != nullptr && !may(granted, *operation))
    return {Errc::no_permission,
            fmt::format("command '{}': wants the role {}, callers of this socket have {}", name,
                        to_string(operation->role), to_string(granted))};
  std::string known;
  for (const auto& [each, handler] : handlers_)
    known += (known.empty() ? "" : ", ") + std::string(each->name);
  return {Errc::invalid_argument, fmt::format("command '{}': allowed are {}", name, known)};
}

// Who answers a request of so many bytes.
Result<const CommandRouter::Handled*> CommandRouter::find(const Json& request, std::size_t bytes,
                                                          Role granted) const {
  if (!request.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  const auto at = request.find("command");
  const std::string name = at != request.end() && at->is_string() ? at->get<std::string>() : "";
  for (const Handled& handled : handlers_) {
    const Operation& operation = *handled.operation;
    if (operation.name != name || !may(granted, operation)) continue;
    if (bytes > operation.longest)
      return Error{Errc::invalid_argument,
                   fmt::format("{}: has {} bytes, allowed are {}", name, bytes, operation.longest)};
    return &handled;
  }
  return unknown(name, granted);
}

std::optional<std::string> CommandRouter::handle(std::string_view text, const Peer& peer) {
  const auto request = parse_json(text, JsonLimits{});
  if (!request.ok()) return answer_text(Error(request.error()).with("the request"));
  const auto found = find(*request, text.size(), granted_to(peer));
  if (!found.ok()) return answer_text(found.error());
  const Answer answer = (*found)->handler(*request, peer);
  return answer ? std::optional(answer_text(*answer)) : std::nullopt;
}

void CommandRouter::closed(const Peer& peer) const {
  for (const auto& hook : hooks_) hook(peer);
}

void CommandRouter::answer_late(ControlServer& server) {
  for (const auto& [connection, text] : take_late()) server.answer(connection, text);
}

void CommandRouter::serve(ControlServer& server) {
  answer_late(server);
  server.serve(std::bind_front(&CommandRouter::handle, this),
               std::bind_front(&CommandRouter::closed, this));
  answer_late(server);
}

}  // namespace derate
