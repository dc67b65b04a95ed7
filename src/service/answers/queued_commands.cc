#include "service/answers/queued_commands.h"

#include <fmt/format.h>

#include "base/background_worker.h"
#include "base/json.h"

namespace derate {

struct QueuedCommands::Asked {
  std::uint64_t connection = 0;
  std::future<Result<Json>> answer;
};

QueuedCommands::QueuedCommands(Clock& clock, CommandRouter& router, Log log)
    : clock_(clock), router_(router), log_(std::move(log)) {}
QueuedCommands::~QueuedCommands() = default;

CommandRouter::Answer QueuedCommands::put(
    const Operation& operation, const std::string& text, const Peer& peer,
    std::function<Result<Json>(const std::string& who)> obey) {
  const std::string who = caller_name(peer);
  log_.info(fmt::format("{} from pid {}, {}", text, peer.pid, who),
            {{"pid", peer.pid}, {"uid", peer.uid}});
  auto asked = queue_.put({.requester = who,
                           .role = router_.granted_to(peer),
                           .operation = &operation,
                           .deadline = clock_.now() + kPatience,
                           .run = [obey = std::move(obey), who] { return obey(who); }});
  if (!asked.ok()) return CommandRouter::Answer(std::move(asked).error());
  asked_.push_back(std::make_unique<Asked>(Asked{peer.connection, *std::move(asked)}));
  return std::nullopt;
}

void QueuedCommands::answer() {
  std::erase_if(asked_, [this](const auto& each) {
    if (!is_ready(each->answer)) return false;
    router_.later(each->connection, each->answer.get());
    return true;
  });
}

}  // namespace derate
