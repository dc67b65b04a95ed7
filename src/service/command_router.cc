#include "service/command_router.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/json_limits.h"

namespace derate {

void CommandRouter::later(std::uint64_t connection, const Result<Json>& answer) {
  late_.emplace_back(connection, answer_text(answer));
}

std::optional<Result<CommandRouter::Json>> CommandRouter::obey(std::string_view text,
                                                               const Peer& peer) const {
  auto parsed = parse_json(text, JsonLimits{});
  if (!parsed.ok()) return std::move(parsed).error().with("the request");
  const Json& request = *parsed;
  if (!request.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  const auto at = request.find("command");
  const std::string name = at != request.end() && at->is_string() ? at->get<std::string>() : "";
  std::string known;
  for (const Command& command : commands_) {
    known += (known.empty() ? "" : ", ") + command.name;
    if (command.name != name) continue;
    if (text.size() > command.longest)
      return Error{Errc::invalid_argument, fmt::format("{}: has {} bytes, allowed are {}", name,
                                                       text.size(), command.longest)};
    if (auto checked = check_fields(request, command.fields); !checked.ok())
      return std::move(checked).error();
    return command.handler(request, peer);
  }
  return Error{Errc::invalid_argument, fmt::format("command '{}': allowed are {}", name, known)};
}

std::optional<std::string> CommandRouter::handle(std::string_view text, const Peer& peer) {
  const auto answer = obey(text, peer);
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
  server.serve([&](std::string_view text, const Peer& peer) { return handle(text, peer); },
               [&](const Peer& peer) { closed(peer); });
  answer_late(server);
}

}  // namespace derate
