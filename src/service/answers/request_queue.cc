#include "service/answers/request_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "base/json.h"

namespace derate {

struct RequestQueue::Waiting {
  Asked asked;
  CommandRouter* router = nullptr;
  Door door = Door::socket;
  Instant deadline{};  // after it nobody waits for the answer

  bool for_round() const { return waits_for_round(*asked.operation); }
};

struct RequestQueue::Done {
  CommandRouter* router = nullptr;
  std::uint64_t connection = 0;
  Result<Json> answer;
};

RequestQueue::RequestQueue(Clock& clock, Log log) : clock_(clock), log_(std::move(log)) {}
RequestQueue::~RequestQueue() = default;

Result<void> RequestQueue::put(Asked asked, CommandRouter& router, Door door) {
  const std::lock_guard lock(mutex_);
  std::size_t over_http = 0, of_user = 0, for_round = 0;
  for (const Waiting& each : waiting_) {
    over_http += each.door == Door::http ? 1 : 0;
    of_user += each.door == Door::http && each.asked.peer.share() == asked.peer.share() ? 1 : 0;
    for_round += each.for_round() ? 1 : 0;
  }
  const std::size_t kept = asked.peer.has_kept_place() ? kKept : 0;
  if (door == Door::http && (over_http >= kMost + kept || of_user >= kMostOfOneUser))
    return Error{Errc::busy, fmt::format("{}: too many requests wait", asked.operation->name)};
  if (waits_for_round(*asked.operation) && for_round >= kMostForRound + kept)
    return Error{Errc::busy,
                 fmt::format("{} commands wait already: try again later", kMostForRound)};
  waiting_.push_back({std::move(asked), &router, door, clock_.now() + kPatience});
  return {};
}

bool RequestQueue::has_for_round() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(waiting_.begin(), waiting_.end(),
                     [](const Waiting& each) { return each.for_round(); });
}

bool RequestQueue::serve_one() {
  std::optional<Waiting> next;
  {
    const std::lock_guard lock(mutex_);
    const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                                 [](const Waiting& each) { return !each.for_round(); });
    if (at == waiting_.end()) return false;
    next = std::move(*at);
    waiting_.erase(at);
  }
  if (const auto answer = next->router->handle(next->asked))
    next->router->later(next->asked.peer.connection, *answer);
  return true;
}

std::vector<RequestQueue::Waiting> RequestQueue::take_for_round() {
  const std::lock_guard lock(mutex_);
  const auto rest = std::stable_partition(waiting_.begin(), waiting_.end(),
                                          [](const Waiting& each) { return !each.for_round(); });
  std::vector<Waiting> out(std::make_move_iterator(rest), std::make_move_iterator(waiting_.end()));
  waiting_.erase(rest, waiting_.end());
  return out;
}

bool RequestQueue::do_round() {
  const auto now = take_for_round();
  for (const Waiting& each : now) {
    const auto& [operation, request, peer] = each.asked;
    log_.info(fmt::format("{} from pid {}, {}", request_text(request), peer.pid, caller_name(peer)),
              {{"pid", peer.pid}, {"uid", peer.uid}});
    if (clock_.now() > each.deadline)
      done_.push_back(
          {each.router, peer.connection,
           Error{Errc::busy, fmt::format("{}: was not begun in time", operation->name)}});
    else if (auto answer = each.router->handle(each.asked))
      done_.push_back({each.router, peer.connection, *std::move(answer)});
  }
  return !now.empty();
}

void RequestQueue::answer_round() {
  for (const auto& [router, connection, answer] : std::exchange(done_, {}))
    router->later(connection, answer);
}

void RequestQueue::refuse(const Error& why) {
  answer_round();
  const auto all = [this] {
    const std::lock_guard lock(mutex_);
    return std::exchange(waiting_, {});
  }();
  for (const Waiting& each : all) each.router->later(each.asked.peer.connection, why);
}

}  // namespace derate
