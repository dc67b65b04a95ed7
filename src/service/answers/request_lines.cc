#include "service/answers/request_lines.h"

#include <fmt/format.h>

#include <functional>

#include "base/json.h"
#include "base/json_limits.h"
#include "service/answers/caller_role.h"

namespace derate {
namespace {

std::string text_of(const Result<Json>& answer) { return json_text(whole_answer(answer)); }

}  // namespace

RequestLines::RequestLines(CommandRouter& router, RequestQueue* queue)
    : router_(router), queue_(queue) {
  router_.send_late(0, [this](std::uint64_t connection, const Result<Json>& answer) {
    late_.emplace_back(connection, text_of(answer));
  });
}

Result<Asked> RequestLines::read(std::string_view text, const Peer& peer) const {
  if (auto refused = refuse_(peer)) return *std::move(refused);
  const Json json = TRY(parse_json(text, JsonLimits{}).with("the request"));
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  const auto at = json.find("command");
  const std::string name = at != json.end() && at->is_string() ? at->get<std::string>() : "";
  const Operation* const operation = find_operation(name);
  if (operation != nullptr) {
    auto may = check_role(*operation, peer, router_.granted());
    if (!may.ok()) router_.refused(peer, may.error());
    TRY(std::move(may));
  }
  if (operation == nullptr || !router_.has(*operation)) return router_.unknown(name);
  if (text.size() > operation->longest)
    return Error{Errc::invalid_argument, fmt::format("{}: has {} bytes, allowed are {}", name,
                                                     text.size(), operation->longest)};
  Asked out{.operation = operation, .request = {}, .peer = peer};
  out.request = TRY(request_named(name, json));
  return out;
}

std::optional<std::string> RequestLines::handle(std::string_view text, const Peer& peer) {
  auto asked = read(text, peer);
  if (!asked.ok()) return text_of(asked.error());
  if (queue_ != nullptr && waits_for_round(*asked->operation)) {
    const auto put = queue_->put(*std::move(asked), router_, RequestQueue::Door::socket);
    return put.ok() ? std::nullopt : std::optional(text_of(put.error()));
  }
  const auto answer = router_.handle(*asked);
  return answer ? std::optional(text_of(*answer)) : std::nullopt;
}

void RequestLines::answer_late(ControlServer& server) {
  for (const auto& [connection, text] : take_late()) server.answer(connection, text);
}

void RequestLines::serve(ControlServer& server) {
  answer_late(server);
  server.serve(std::bind_front(&RequestLines::handle, this),
               std::bind_front(&RequestLines::closed, this));
  answer_late(server);
}

}  // namespace derate
