// Duties of derate-agent on threads of their own, next to its server's thread: pages that are kept
// for a second (CachedPage), operations (ForwardPool), and streams. Each answers in bounded time,
// also while derated hangs, and delays none of the others. A call to derated that hangs ends with
// the process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/background_worker.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "service/http/http_call.h"
#include "service/http/http_server.h"

namespace derate::agent {

// Where answers go, from any thread, until close(): the server may be gone then.
class Answers {
 public:
  // Answers that are ready before `make` has returned its server wait for that.
  Result<void> open(const std::function<Result<std::unique_ptr<HttpServer>>()>& make);
  void answer(std::uint64_t number, HttpReply reply);
  void wake_streams();
  void close();

 private:
  std::mutex mutex_;
  std::unique_ptr<HttpServer> server_;
};

// Asks the first of derated's sockets on which somebody listens.
Result<HttpResponse> call_derated(const std::vector<std::string>& sockets, const HttpAsk& ask,
                                  Duration patience);

// The same of a stream, until `stop_fd` can be read.
Result<HttpResponse> stream_derated(const std::vector<std::string>& sockets, const HttpAsk& ask,
                                    int stop_fd,
                                    const std::function<bool(std::string_view piece)>& take);

// 503, or 502 for what will not go better by itself.
HttpResponse unavailable(const Error& error);

// A page that costs derated the same however many ask for it: once a second at most. From kFresh to
// kUsable the page that is there is given while a new one comes, so that a crowd does not wait.
class CachedPage {
 public:
  static constexpr Duration kFresh = std::chrono::seconds(1), kUsable = std::chrono::seconds(2);
  static constexpr Duration kPatience = std::chrono::seconds(4);
  static constexpr std::size_t kMostWaiting = 1024;
  using Call = std::function<Result<HttpResponse>()>;

  CachedPage(Call call, std::shared_ptr<Answers> answers, Clock& clock,
             BackgroundWorker::Where where);
  // Empty: the answer comes later.
  std::optional<HttpResponse> ask(std::uint64_t number);

 private:
  struct State;
  std::shared_ptr<State> state_;
  BackgroundWorker worker_;
};

// Operations, a few at a time, in the order in which they came.
class ForwardPool {
 public:
  static constexpr std::size_t kThreads = 4, kMostWaiting = 64;
  static constexpr Duration kPatience = std::chrono::seconds(10);
  // Asks derated and answers, with that much patience left; 0 or less: it has waited in vain.
  using Job = std::function<void(Duration patience)>;

  ForwardPool(Clock& clock, std::size_t threads);
  ~ForwardPool();  // what waits is forgotten
  ForwardPool(const ForwardPool&) = delete;
  ForwardPool& operator=(const ForwardPool&) = delete;
  // False: too many wait.
  bool put(Job job);

 private:
  struct State;
  static void work(State& state);
  std::shared_ptr<State> state_;
};

// Streams, a thread each. A reader who falls behind is told so by a last event.
class Streams {
 public:
  static constexpr std::size_t kMost = 16, kMostUnread = 256 << 10;
  // Asks for the stream until `stop_fd` can be read, passing pieces on.
  using Call = std::function<Result<HttpResponse>(
      int stop_fd, const std::function<bool(std::string_view piece)>& take)>;
  // The status that derated answers with; where it is 200 the stream begins.
  using Heard = std::function<void(int status)>;

  explicit Streams(std::shared_ptr<Answers> answers);
  ~Streams();
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  // The answer to that request comes later. False: there are too many.
  bool begin(std::uint64_t number, Call call, Heard heard);
  // Its reader has gone.
  void end(std::uint64_t number);

 private:
  struct Stream;
  struct State;
  static void run(const std::shared_ptr<Stream>& stream, Answers& answers);
  std::shared_ptr<State> state_;
};

}  // namespace derate::agent
