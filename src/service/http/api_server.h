// The operations of the table over HTTP on a unix socket, and pages beside them. What is known
// already is answered on the server's thread, what reads files on one of its own, and what concerns
// the loop by the loop, in a bounded queue and share of its time.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "api/http_operation.h"
#include "base/background_worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "service/answers/command_router.h"
#include "service/http/http_server.h"
#include "service/transport/client_turns.h"

namespace derate {

class ApiServer {
 public:
  using Json = nlohmann::ordered_json;

  // Requests that wait for the loop, and for files: of all, and of one user. More are refused, 503.
  static constexpr std::size_t kMostWaiting = 128, kMostOfOneUser = 16;
  static constexpr std::size_t kMostReading = 16, kMostReadingOfOneUser = 4;
  // Numbers of requests in the routers begin here, so that none is that of a socket's connection.
  static constexpr std::uint64_t kFirstNumber = std::uint64_t{1} << 62;

  struct Options {
    std::string version;  // of Derate, for the document
    Log log = {};
    // Who asks: the caller with what it may do, or the answer that refuses it.
    std::function<std::variant<Peer, HttpResponse>(const HttpRequest&, const Peer&)> admit;
    HttpServerOptions limits = {};  // the functions are set here
    BackgroundWorker::Where reading = BackgroundWorker::Where::on_a_thread;
  };

  // `clock` outlives it.
  ApiServer(Clock& clock, Options options);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  // --- before listen(): who answers what; operations that are not named here are the loop's

  enum class Where : std::uint8_t { at_once, beside };
  // handler(const Request&, const Peer&) gives a Result<Json>; `at_once`: on the server's thread,
  // so it must not wait; `beside`: on the one for files.
  template <class Request, class Handler>
  void add(Where where, Handler handler) {
    local_[Request::kOperation] = {where, Typed<Request, Handler>{std::move(handler)}};
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
  // Answers what waits for the loop, within RoundBudget; what is left is the next call's.
  void serve(CommandRouter& operators, CommandRouter& clients);
  // The answer that a router has later.
  void answer(std::uint64_t number, const std::string& text);
  // What still waits is answered: the loop ends.
  void refuse_all(const Error& why);

  // From any thread: streams may have something new.
  void wake_streams();
  HttpServer::Figures figures() const;

 private:
  using Local = std::function<Result<Json>(const Json& request, const Peer& peer)>;
  template <class Request, class Handler, class Out = Result<Json>>
  struct Typed {
    Out operator()(const Json& json, const Peer& peer) const {
      const auto request = request_of<Request>(json);
      if (!request.ok()) return Out(request.error());
      return handler(*request, peer);
    }
    Handler handler;
  };
  struct LocalAnswer {
    Where where = Where::at_once;
    Local answer;
  };
  struct PageOf {
    HttpKind kind = HttpKind::control;
    Page page;
  };
  struct Waiting {
    Peer peer;
    const Operation* operation = nullptr;
    std::string text;
  };
  // What outlives the server where reading hangs.
  struct Link {
    std::mutex mutex;
    HttpServer* server = nullptr;
    std::map<uid_t, std::size_t> reading;  // by user
  };

  HttpKind kind_of(const HttpRequest& head) const;
  HttpReply handle(const HttpCall& call);
  HttpReply handle(const Operation& operation, const HttpRequest& request, const Peer& peer);
  HttpReply read_beside(const Operation& operation, const Local& local, const Json& request,
                        const Peer& peer);
  HttpReply wait_for_loop(const Operation& operation, const Json& request, const Peer& peer);
  const Page* stream_of(const HttpRequest& request) const;
  std::optional<Waiting> take();
  void serve(const Waiting& waiting, CommandRouter& operators, CommandRouter& clients);

  Clock& clock_;
  Options options_;
  std::map<std::string, LocalAnswer, std::less<>> local_;
  std::map<std::string, PageOf, std::less<>> pages_;
  std::map<std::pair<std::string, std::string>, Page> streams_;  // by path and content type
  UniqueFd wake_;
  RoundBudget budget_;
  std::mutex mutex_;
  std::deque<Waiting> waiting_;
  std::shared_ptr<Link> link_ = std::make_shared<Link>();
  BackgroundWorker reader_;
  std::unique_ptr<HttpServer> server_;  // the last, so that its thread ends first
};

}  // namespace derate
