// HTTP server of the operations of the table on a unix socket, with pages and streams. The server's
// thread answers from memory, and a thread of its own reads files. Requests that concern the loop
// wait, as values, in the daemon's one queue.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

#include "api/http_operation.h"
#include "base/background_worker.h"
#include "base/clock.h"
#include "base/result.h"
#include "service/answers/request_desk.h"
#include "service/http/http_server.h"
#include "service/transport/client_turns.h"

namespace derate {

class ApiServer {
 public:
  using Json = nlohmann::ordered_json;

  // Requests that wait for files: of all, and of one user. More are refused, 503.
  static constexpr std::size_t kMostReading = 16, kMostReadingOfOneUser = 4;
  static constexpr std::size_t kKeptReading = 4;  // in addition, for root and operators
  // Numbers of requests in the routers begin here, so that none is that of a socket's connection.
  static constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 62;

  struct Options {
    std::string version;  // of Derate, for the document
    // Checks the caller: returns it with its role, or the answer that refuses it. A stream's caller
    // is checked again before each piece.
    std::function<std::variant<Peer, HttpResponse>(const HttpRequest&, const Peer&)> admit;
    // Called on the server's thread if a request is not admitted or its role does not allow the
    // operation.
    std::function<void(const Peer& peer, const std::string& why)> refused =
        [](const Peer&, const std::string&) {};
    // Sentence on who may ask for the operation, and how a caller whose role does not allow it
    // becomes one of them; empty: nothing is said of it.
    std::function<std::string(const Operation&, const Peer&)> way_to =
        [](const Operation&, const Peer&) { return std::string(); };
    HttpServerOptions limits = {};  // the functions are set here
    BackgroundWorker::Where reading = BackgroundWorker::Where::on_a_thread;
  };

  // Both outlive it.
  ApiServer(Clock& clock, RequestDesk& desk, Options options);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // --- before listen(): who answers what; operations that are not named here are the loop's

  // At once, on the server's thread: handler(const Request&, const Peer&) gives a Result<Json> and
  // waits for nothing.
  template <class Request, class Handler>
  void add(Handler handler) {
    local_[Request::kOperation] = [handler = std::move(handler)](const Asked& asked) {
      return reply_of(handler(std::get<Request>(asked.request), asked.peer));
    };
  }
  // On the thread for files, which may outlive the server and all else: begin(const Request&), on
  // the server's thread, gives a Job of values and of what it owns a share of, and nothing else.
  using Job = std::function<Result<Json>()>;
  template <class Request, class Begin>
  void add_reading(Begin begin) {
    local_[Request::kOperation] = [this, begin = std::move(begin)](const Asked& asked) {
      return read(asked, [&] { return begin(std::get<Request>(asked.request)); });
    };
  }
  using Page = std::function<HttpReply(const HttpRequest&, const Peer&)>;
  // GET of that path, for whoever may read.
  void add_page(const std::string& path, HttpKind kind, Page page);
  // GET of an operation's path by who accepts that content type: a stream in place of an answer.
  void add_stream(const std::string& path, const std::string& content_type, Page page);

  // Errors: those of the server's thread.
  Result<void> listen(UniqueFd socket);

  // --- on the loop's thread

  // Can be read from (poll) when there is something to serve.
  int fd() const { return wake_.get(); }
  // Answers requests that wait for the loop but not for the begin of a round, within RoundBudget.
  // The next call answers the rest. Each second, ends streams whose callers are no longer admitted.
  void serve();

  // Callable from any thread, if streams may have news or readers may have lost the right to read.
  void wake_streams();
  HttpServer::Figures figures() const;

 private:
  using Local = std::function<HttpReply(const Asked& asked)>;
  struct PageOf {
    HttpKind kind = HttpKind::control;
    Page page;
  };
  // What outlives the server where reading hangs.
  struct Link {
    std::mutex mutex;
    HttpServer* server = nullptr;
    std::map<uid_t, std::size_t> reading;  // by person
  };

  static HttpReply reply_of(const Result<Json>& answer);
  HttpKind kind_of(const HttpRequest& head) const;
  HttpReply handle(const HttpCall& call);
  HttpReply handle(const Operation& operation, const HttpRequest& request, const Peer& peer);
  HttpReply read(const Asked& asked, const std::function<Job()>& begin);
  HttpReply wait_for_loop(Asked asked);
  const Page* stream_of(const HttpRequest& request) const;
  HttpReply stream(const Page& page, const HttpRequest& request, const Peer& from,
                   const Peer& admitted) const;

  Clock& clock_;
  RequestDesk& desk_;
  Options options_;
  std::map<std::string, Local, std::less<>> local_;
  std::map<std::string, PageOf, std::less<>> pages_;
  std::map<std::pair<std::string, std::string>, Page> streams_;  // by path and content type
  UniqueFd wake_;
  RoundBudget budget_;
  Instant looked_at_streams_ = Instant::min();
  std::shared_ptr<Link> link_ = std::make_shared<Link>();
  BackgroundWorker reader_;
  std::unique_ptr<HttpServer> server_;  // the last, so that its thread ends first
};

}  // namespace derate
