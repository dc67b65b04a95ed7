#include "duties.h"

#include <fmt/format.h>
#include <sys/eventfd.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <utility>

#include "agent_rules.h"

namespace derate::agent {
namespace {

// Of the first socket on which somebody listens.
Result<HttpResponse> of_first(const std::vector<std::string>& sockets, const auto& call) {
  for (const std::string& socket : sockets) {
    auto answer = call(socket);
    if (answer.ok() || answer.error().code != Errc::not_found) return answer;
  }
  return Error{Errc::not_found,
               fmt::format("derated is not running: nobody listens on '{}'", sockets.back())};
}

constexpr std::string_view kLastEvent =
    "event: dropped\ndata: {\"reason\":\"the reader is too slow: what came after this is "
    "lost\"}\n\n";

}  // namespace

// --- Answers -------------------------------------------------------------------------------------

Result<void> Answers::open(const std::function<Result<std::unique_ptr<HttpServer>>()>& make) {
  const std::lock_guard lock(mutex_);
  server_ = TRY(make());
  return {};
}

void Answers::answer(std::uint64_t number, HttpReply reply) {
  const std::lock_guard lock(mutex_);
  if (server_ != nullptr) server_->answer(number, std::move(reply));
}

void Answers::wake_streams() {
  const std::lock_guard lock(mutex_);
  if (server_ != nullptr) server_->wake_streams();
}

// Without the lock: the server's thread, which is waited for, may be in here.
void Answers::close() {
  std::unique_ptr<HttpServer> ended;
  const std::lock_guard lock(mutex_);
  ended = std::move(server_);
}

// --- derated -------------------------------------------------------------------------------------

Result<HttpResponse> call_derated(const std::vector<std::string>& sockets, const HttpAsk& ask,
                                  Duration patience) {
  return of_first(sockets,
                  [&](const std::string& socket) { return http_call(socket, ask, patience); });
}

Result<HttpResponse> stream_derated(const std::vector<std::string>& sockets, const HttpAsk& ask,
                                    int stop_fd,
                                    const std::function<bool(std::string_view piece)>& take) {
  return of_first(
      sockets, [&](const std::string& socket) { return http_stream(socket, ask, stop_fd, take); });
}

HttpResponse unavailable(const Error& error) {
  const bool mends = error.code == Errc::not_found || error.code == Errc::gpu_stuck ||
                     error.code == Errc::busy || error.code == Errc::interrupted;
  HttpResponse out = error_response(mends ? 503 : 502, error.message);
  if (mends) out.fields = {{"Retry-After", "1"}};
  return answer_of(std::move(out));
}

// --- Pages ---------------------------------------------------------------------------------------

struct CachedPage::State {
  Call call;
  std::shared_ptr<Answers> answers;
  Clock& clock;
  std::mutex mutex = {};
  std::optional<HttpResponse> answer = {};
  Instant answered{};
  std::vector<std::uint64_t> waiting = {};
  bool renews = false;

  void renew() {
    auto called = call();
    const HttpResponse now =
        called.ok() ? answer_of(*std::move(called)) : unavailable(called.error());
    std::unique_lock lock(mutex);
    answer = now;
    answered = clock.now();
    renews = false;
    const auto told = std::exchange(waiting, {});
    lock.unlock();
    for (const std::uint64_t number : told) answers->answer(number, now);
  }
};

CachedPage::CachedPage(Call call, std::shared_ptr<Answers> answers, Clock& clock,
                       BackgroundWorker::Where where)
    : state_(new State{std::move(call), std::move(answers), clock}), worker_(where) {}

std::optional<HttpResponse> CachedPage::ask(std::uint64_t number) {
  std::unique_lock lock(state_->mutex);
  const Duration age = state_->clock.now() - state_->answered;
  if (state_->answer && age < kFresh) return state_->answer;
  std::optional<HttpResponse> out;
  if (state_->answer && age < kUsable)
    out = state_->answer;
  else if (state_->waiting.size() >= kMostWaiting)
    out = unavailable({Errc::busy, "too many wait for this page"});
  else
    state_->waiting.push_back(number);
  const bool begins = !std::exchange(state_->renews, true);
  lock.unlock();
  if (begins) worker_.post([state = state_] { state->renew(); });
  return out;
}

// --- Operations ----------------------------------------------------------------------------------

struct ForwardPool::State {
  struct Waiting {
    Job job;
    Instant deadline;
  };
  Clock& clock;
  std::mutex mutex = {};
  std::condition_variable news = {};
  std::deque<Waiting> waiting = {};
  bool ended = false;
};

ForwardPool::ForwardPool(Clock& clock, std::size_t threads) : state_(new State{clock}) {
  for (std::size_t i = 0; i < threads; ++i) start_thread([state = state_] { work(*state); });
}

ForwardPool::~ForwardPool() {
  const std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->waiting.clear();
  state_->news.notify_all();
}

bool ForwardPool::put(Job job) {
  const std::lock_guard lock(state_->mutex);
  if (state_->waiting.size() >= kMostWaiting) return false;
  state_->waiting.push_back({std::move(job), state_->clock.now() + kPatience});
  state_->news.notify_one();
  return true;
}

void ForwardPool::work(State& state) {
  while (true) {
    std::unique_lock lock(state.mutex);
    state.news.wait(lock, [&] { return state.ended || !state.waiting.empty(); });
    if (state.ended) return;
    const auto next = std::move(state.waiting.front());
    state.waiting.pop_front();
    lock.unlock();
    next.job(next.deadline - state.clock.now());
  }
}

// --- Streams -------------------------------------------------------------------------------------

struct Streams::Stream {
  std::uint64_t number;
  Call call;
  Heard heard;
  UniqueFd stop = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::mutex mutex = {};
  std::string unread = {};
  bool ended = false;

  void stop_now() const { (void)::eventfd_write(stop.get(), 1); }

  // For the server's thread.
  std::optional<std::string> next() {
    const std::lock_guard lock(mutex);
    if (unread.empty() && ended) return std::nullopt;
    return std::exchange(unread, {});
  }

  // False: no more.
  bool take(std::string_view piece) {
    const std::lock_guard lock(mutex);
    if (ended) return false;
    if (unread.size() + piece.size() > kMostUnread) {
      // Whole events: the last one that is whole ends with an empty line.
      unread.resize(unread.rfind("\n\n") == std::string::npos ? 0 : unread.rfind("\n\n") + 2);
      unread += kLastEvent;
      ended = true;
      return false;
    }
    unread += piece;
    return true;
  }

  void end() {
    const std::lock_guard lock(mutex);
    ended = true;
  }
};

struct Streams::State {
  std::shared_ptr<Answers> answers;
  std::mutex mutex = {};
  std::map<std::uint64_t, std::shared_ptr<Stream>> running = {};
};

Streams::Streams(std::shared_ptr<Answers> answers) : state_(new State{std::move(answers)}) {}

Streams::~Streams() {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [number, stream] : state_->running) stream->stop_now();
}

bool Streams::begin(std::uint64_t number, Call call, Heard heard) {
  const std::lock_guard lock(state_->mutex);
  if (state_->running.size() >= kMost) return false;
  const std::shared_ptr<Stream> stream(new Stream{number, std::move(call), std::move(heard)});
  if (!stream->stop.valid()) return false;
  state_->running.emplace(number, stream);
  start_thread([state = state_, stream, number] {
    run(stream, *state->answers);
    const std::lock_guard ended(state->mutex);
    state->running.erase(number);
  });
  return true;
}

void Streams::end(std::uint64_t number) {
  const std::lock_guard lock(state_->mutex);
  const auto stream = state_->running.find(number);
  if (stream != state_->running.end()) stream->second->stop_now();
}

// The server asks for pieces for as long as it has the stream, maybe longer than this runs.
void Streams::run(const std::shared_ptr<Stream>& stream, Answers& answers) {
  bool begun = false;
  const auto answer = stream->call(stream->stop.get(), [&](std::string_view piece) {
    if (!std::exchange(begun, true)) {
      stream->heard(200);
      answers.answer(stream->number, HttpStream{.next = [stream] { return stream->next(); }});
    }
    const bool goes_on = stream->take(piece);
    answers.wake_streams();
    return goes_on;
  });
  stream->end();
  if (begun) return answers.wake_streams();
  if (answer.ok()) stream->heard(answer->status);
  answers.answer(stream->number, answer.ok() ? answer_of(*answer) : unavailable(answer.error()));
}

}  // namespace derate::agent
