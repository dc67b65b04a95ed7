#include "service/answers/command_queue.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"

namespace derate {

struct CommandQueue::Waiting {
  QueuedCommand command;
  std::promise<Result<Json>> answer = {};
};

CommandQueue::CommandQueue() = default;
CommandQueue::~CommandQueue() = default;

Result<std::future<Result<Json>>> CommandQueue::put(QueuedCommand command) {
  if (!may(command.role, *command.operation))
    return Error{Errc::no_permission,
                 fmt::format("{}: wants the role {}, {} has {}", command.operation->name,
                             to_string(command.operation->role), command.requester,
                             to_string(command.role))};
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMost)
    return Error{Errc::busy, fmt::format("{} commands wait already: try again later", kMost)};
  waiting_.push_back(std::make_unique<Waiting>(Waiting{std::move(command)}));
  return waiting_.back()->answer.get_future();
}

bool CommandQueue::empty() {
  const std::lock_guard lock(mutex_);
  return waiting_.empty();
}

std::deque<std::unique_ptr<CommandQueue::Waiting>> CommandQueue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

void CommandQueue::refuse(const Error& why) {
  for (const auto& each : take()) each->answer.set_value(why);
}

std::size_t CommandQueue::drain(Clock& clock) {
  const auto now = take();
  for (const auto& each : now) {
    const QueuedCommand& command = each->command;
    if (clock.now() > command.deadline)
      each->answer.set_value(
          Error{Errc::busy, fmt::format("{}: was not begun in time", command.operation->name)});
    else
      each->answer.set_value(command.run());
  }
  return now.size();
}

}  // namespace derate
