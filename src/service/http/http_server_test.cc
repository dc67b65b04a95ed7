#include "service/http/http_server.h"

#include <dirent.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/number.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "service/http/http_call.h"
#include "service/http/test_http.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// Answers: /echo with what was asked, /later never (unless the test does), /big with a megabyte,
// /events with what the test puts there, /slow after 2 ms of work, /hold when the test says so,
// /live as of kind health.
class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() : folder_(0755), path_(folder_.file("api.sock")) {
    options_.kind_of = [](const HttpRequest& head) {
      if (head.path == "/live") return HttpKind::health;
      return head.path == "/events" ? HttpKind::stream : HttpKind::control;
    };
    options_.handle = [this](const HttpCall& call) { return handle(call); };
    options_.gone = [this](const Peer& peer) {
      const std::lock_guard lock(mutex_);
      gone_.push_back(peer.connection);
    };
    options_.requests_a_second_of_a_user = 1e6;
  }
  ~HttpServerTest() override {
    holds_ = false;
    server_.reset();
  }

  void serve() {
    auto made = HttpServer::create(*listen_unix(path_, 0666), clock_, options_);
    CHECK(made.ok());
    server_ = *std::move(made);
  }

  HttpReply handle(const HttpCall& call) {
    const std::string& path = call.request.path;
    if (path == "/hold") hold();
    const std::lock_guard lock(mutex_);
    ++handled_[path];
    if (path == "/later") {
      later_.push_back(call.peer.connection);
      return HttpLater{};
    }
    if (path == "/events") return HttpStream{.next = [this] { return next_event(); }};
    if (path == "/export") return HttpStream{.content_type = "text/csv", .next = next_row(5)};
    if (path == "/endless") return HttpStream{.content_type = "text/csv", .next = next_row(-1)};
    if (path == "/big") return HttpResponse{.body = std::string(1 << 20, 'b')};
    if (path == "/slow")
      for (const Instant end = clock_.now() + 2ms; clock_.now() < end;) continue;
    return HttpResponse{.content_type = "text/plain",
                        .body = call.request.method + " " + call.request.target + " " +
                                call.request.body + " of " + std::to_string(call.peer.uid) + ";"};
  }
  // The server's thread, until the test lets it go on.
  void hold() {
    {
      const std::lock_guard lock(mutex_);
      ++handled_["/held"];
    }
    while (holds_) clock_.sleep_until(clock_.now() + 1ms);
  }
  std::optional<std::string> next_event() {
    const std::lock_guard lock(mutex_);
    if (events_.empty() && ends_) return std::nullopt;
    return std::exchange(events_, {});
  }
  static std::function<std::optional<std::string>()> next_row(int most) {
    return [most, n = 0]() mutable -> std::optional<std::string> {
      if (n++ == most) return std::nullopt;
      return "row," + std::to_string(n) + "\n";
    };
  }
  void put_event(const std::string& text) {
    {
      const std::lock_guard lock(mutex_);
      events_ += text;
    }
    server_->wake_streams();
  }
  std::vector<std::uint64_t> later() {
    const std::lock_guard lock(mutex_);
    return later_;
  }
  std::vector<std::uint64_t> gone() {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  int handled(const std::string& path) {
    const std::lock_guard lock(mutex_);
    return handled_[path];
  }
  HttpResponse ask(const std::string& target) const {
    auto answer = http_call(path_, {.target = target}, 10s);
    return answer.ok() ? *answer : HttpResponse{.status = 0, .body = answer.error().message};
  }
  // The status of the answer to such bytes, after which the server has to close.
  int status_of(const std::string& text) const {
    RawCaller caller(path_);
    caller.send(text);
    const std::string answer = caller.read_to_end();
    return caller.is_closed() ? status_in(answer) : -1;
  }

  const Folder folder_;
  const std::string path_;
  SystemClock clock_;
  HttpServerOptions options_;
  std::mutex mutex_;  // of what the server's thread writes
  std::map<std::string, int> handled_;
  std::vector<std::uint64_t> later_, gone_;
  std::string events_;
  bool ends_ = false;
  std::atomic<bool> holds_ = true;
  std::unique_ptr<HttpServer> server_;
};

// --- answers -------------------------------------------------------------------------------------

TEST_F(HttpServerTest, AnswersAndKnowsTheCaller) {
  serve();
  const HttpResponse answer = ask("/echo?a=%20");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.content_type, "text/plain");
  EXPECT_EQ(answer.body, "GET /echo?a=%20  of " + std::to_string(::geteuid()) + ";");
  const auto posted = http_call(path_, {.method = "POST", .target = "/echo", .body = "body"}, 10s);
  ASSERT_TRUE(posted.ok()) << posted.error().message;
  EXPECT_EQ(posted->body, "POST /echo body of " + std::to_string(::geteuid()) + ";");
  EXPECT_EQ(server_->figures().requests, 2u);
  EXPECT_EQ(server_->figures().connections, 2u);
}

TEST_F(HttpServerTest, AnswersTellWhenTheyWereMade) {
  EXPECT_EQ(http_date(WallTime(784111777s)), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(WallTime(0s) - 1ms), "Wed, 31 Dec 1969 23:59:59 GMT");
  serve();
  const WallTime before = clock_.wall_now();
  const auto told = find_field(ask("/echo").fields, "Date");
  EXPECT_TRUE(told == http_date(before) || told == http_date(clock_.wall_now()));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  serve();
  RawCaller caller(path_);
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += "GET /echo?n=" + std::to_string(i) + " HTTP/1.1\r\nHost: x\r\n\r\n";
  text += "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /echo?n=last HTTP/1.1\r\nHost: x\r\n\r\n";
  caller.send(text);
  for (int i = 0; i < 100; ++i)
    EXPECT_NE(caller.read_until(";").find("n=" + std::to_string(i) + " "), std::string::npos);
  ASSERT_TRUE(becomes_true([&] { return later().size() == 1; }));
  EXPECT_EQ(handled("/echo"), 100);  // the last waits for the one before
  server_->answer(later()[0], HttpResponse{.body = "late"});
  EXPECT_NE(caller.read_until("late").find("200 OK"), std::string::npos);
  EXPECT_NE(caller.read_until("n=last").find("200 OK"), std::string::npos);
}

TEST_F(HttpServerTest, LaterAnswersComeInAnyOrderFromAnyThread) {
  serve();
  std::vector<RawCaller> callers;
  for (int i = 0; i < 20; ++i) {
    callers.emplace_back(path_);
    callers.back().get("/later");
    ASSERT_TRUE(becomes_true([&] { return later().size() == callers.size(); }));
  }
  const auto numbers = later();
  std::thread([&] {
    for (std::size_t i = numbers.size(); i-- > 0;)
      server_->answer(numbers[i],
                      HttpResponse{.status = 202, .body = "<" + std::to_string(i) + ">"});
    server_->answer(numbers[0], HttpResponse{.body = "again"});
    server_->answer(12345, HttpResponse{.body = "nobody's"});
  }).join();
  for (std::size_t i = 0; i < callers.size(); ++i) {
    const std::string answer = callers[i].read_until(">");
    EXPECT_EQ(status_in(answer), 202);
    EXPECT_NE(answer.find("<" + std::to_string(i) + ">"), std::string::npos);
  }
  callers[0].get("/echo");  // "again" came to nobody
  EXPECT_NE(callers[0].read_until(";").find("GET /echo"), std::string::npos);
  EXPECT_TRUE(gone().empty());
}

TEST_F(HttpServerTest, HeadHasTheLengthAndNoBody) {
  serve();
  const auto head = http_call(path_, {.method = "HEAD", .target = "/big"}, 10s);
  ASSERT_TRUE(head.ok());
  EXPECT_EQ(head->body, "");
  EXPECT_EQ(find_field(head->fields, "Content-Length"), "1048576");
  EXPECT_EQ(ask("/big").body.size(), 1u << 20);
}

TEST_F(HttpServerTest, OlderCallersAreServedTheirWay) {
  serve();
  RawCaller old(path_);
  old.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_to_end().find("Connection: close"), std::string::npos);
  RawCaller kept(path_);
  kept.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(kept.read_until(";").find("Connection: keep-alive"), std::string::npos);
  kept.send("GET /export HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string rows = kept.read_to_end();
  EXPECT_EQ(rows.find("chunked"), std::string::npos);
  EXPECT_NE(rows.find("\r\n\r\nrow,1\nrow,2\n"), std::string::npos);
}

TEST_F(HttpServerTest, WhoEndsSendingIsStillAnswered) {
  serve();
  RawCaller caller(path_);
  caller.get("/later");
  caller.end_sending();
  ASSERT_TRUE(becomes_true([&] { return later().size() == 1; }));
  server_->answer(later()[0], HttpResponse{.body = "late"});
  EXPECT_NE(caller.read_to_end().find("late"), std::string::npos);
  EXPECT_TRUE(gone().empty());
}

TEST_F(HttpServerTest, AFieldsValueBeginsNoOtherField) {
  options_.handle = [](const HttpCall&) {
    return HttpResponse{.content_type = "a\r\nX-A: b", .fields = {{"X", "c\nX-B: d"}}};
  };
  serve();
  const HttpResponse answer = ask("/");
  EXPECT_EQ(find_field(answer.fields, "X-A"), std::nullopt);
  EXPECT_EQ(find_field(answer.fields, "X-B"), std::nullopt);
}

// --- bad input -----------------------------------------------------------------------------------

TEST_F(HttpServerTest, WhatIsWrongHasItsStatusAndEndsTheConnection) {
  serve();
  const std::string get = "GET /echo HTTP/1.1\r\n", host = "Host: x\r\n";
  EXPECT_EQ(status_of("rubbish\r\n\r\n"), 400);
  EXPECT_EQ(status_of(std::string("\x16\x03\x01\x02\n", 5)), 400);  // TLS
  EXPECT_EQ(status_of(get + "\r\n"), 400);
  EXPECT_EQ(status_of(get + host + "A: " + std::string(100'000, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(status_of("GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n"), 414);
  EXPECT_EQ(status_of(get + host + "Content-Length: 9999999\r\n\r\n" + std::string(999'999, 'a')),
            413);
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\n" + host + "\r\n"), 505);
  EXPECT_EQ(status_of(get + host + "Expect: x\r\n\r\n"), 417);
  EXPECT_EQ(handled("/echo"), 0);
  EXPECT_EQ(ask("/echo").status, 200);
}

TEST_F(HttpServerTest, WhoAsksWhetherToGoOnIsTold) {
  serve();
  RawCaller caller(path_);
  caller.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n");
  EXPECT_EQ(caller.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(handled("/echo"), 0);
  caller.send("body");
  EXPECT_NE(caller.read_until(";").find("POST /echo body"), std::string::npos);
  caller.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 99999\r\n\r\n");
  EXPECT_EQ(status_in(caller.read_to_end()), 413);
}

TEST_F(HttpServerTest, SlowSendersAreRefused) {
  options_.head_time = 100ms;
  serve();
  RawCaller silent(path_), drips(path_), body(path_);
  silent.send("GET /ec");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  pollfd wanted{drips.fd(), POLLIN, 0};
  for (int i = 0; i < 500 && wanted.revents == 0; ++i) {
    drips.send("a");
    (void)::poll(&wanted, 1, 10);
  }
  EXPECT_NE(wanted.revents, 0);  // while it still sends
  EXPECT_EQ(status_in(silent.read_to_end()), 408);
  EXPECT_EQ(status_in(drips.read_to_end()), 408);
  EXPECT_EQ(status_in(body.read_to_end()), 408);
  EXPECT_EQ(handled("/echo"), 0);
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  options_.idle_time = 50ms;
  serve();
  RawCaller silent(path_), once(path_);
  once.get("/echo");
  EXPECT_EQ(status_in(once.read_until(";")), 200);
  EXPECT_EQ(silent.read_to_end(), "");
  EXPECT_TRUE(silent.is_closed());
  once.read_to_end();
  EXPECT_TRUE(once.is_closed());
}

TEST_F(HttpServerTest, ReadersThatNeverReadAreClosed) {
  options_.write_time = 50ms;
  serve();
  RawCaller caller(path_);
  caller.get("/big");
  ASSERT_TRUE(becomes_true([&] { return handled("/big") == 1; }));
  char byte = 0;
  ASSERT_TRUE(becomes_true([&] {  // closed, with its socket's buffer full
    return ::send(caller.fd(), &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno == EPIPE;
  }));
  EXPECT_LT(caller.read_to_end().size(), 1u << 20);
}

// --- streams -------------------------------------------------------------------------------------

TEST_F(HttpServerTest, AStreamGivesItsPiecesInOrder) {
  serve();
  std::string got;
  std::thread reader([&] {
    const auto ended = http_stream(path_, {.target = "/events"}, -1, [&](std::string_view piece) {
      got += piece;
      return true;
    });
    EXPECT_TRUE(ended.ok());
    EXPECT_EQ(ended->content_type, "text/event-stream");
  });
  ASSERT_TRUE(becomes_true([&] { return server_->figures().streams == 1; }));
  std::string want;
  for (int i = 0; i < 200; ++i) {
    const std::string event = "data: " + std::to_string(i) + "\n\n";
    want += event;
    put_event(event);
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  server_->wake_streams();
  reader.join();
  EXPECT_EQ(got, want);
  EXPECT_TRUE(gone().empty());
  EXPECT_EQ(server_->figures().dropped_streams, 0u);
}

TEST_F(HttpServerTest, AStreamThatEndsLeavesTheConnectionToTheNextRequest) {
  serve();
  RawCaller caller(path_);
  caller.get("/export");
  EXPECT_EQ(count_in(caller.read_until("\r\n0\r\n\r\n"), "row,"), 5u);
  caller.get("/echo");
  EXPECT_EQ(status_in(caller.read_until(";")), 200);
  EXPECT_TRUE(gone().empty());
}

TEST_F(HttpServerTest, AStreamWithoutEventsHasHeartbeats) {
  options_.heartbeat_time = 20ms;
  options_.write_time = 10s;
  serve();
  RawCaller caller(path_);
  caller.get("/events");
  caller.read_until("\r\n\r\n");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(caller.read_until("\n\n\r\n"), "4\r\n: \n\n\r\n");
}

// A reader who reads again is told that it has missed something; one who never does is closed.
TEST_F(HttpServerTest, AStreamsReaderThatIsTooSlowIsDropped) {
  options_.most_unread_stream_bytes = 64 << 10;
  serve();
  RawCaller sleeper(path_);
  sleeper.get("/events");
  ASSERT_TRUE(becomes_true([&] { return server_->figures().streams == 1; }));
  const std::string event = "data: " + std::string(20'000, 'e') + "\n\n";
  std::size_t put = 0;
  ASSERT_TRUE(becomes_true([&] {
    ++put;
    put_event(event);
    return server_->figures().dropped_streams == 1;
  }));
  EXPECT_EQ(gone().size(), 1u);
  const std::string got = sleeper.read_to_end();
  EXPECT_LT(count_in(got, "data: e"), put - 1);
  EXPECT_TRUE(got.ends_with("event: dropped\ndata: this reader is too slow\n\n\r\n0\r\n\r\n"))
      << got.substr(got.size() - std::min<std::size_t>(got.size(), 200));
  EXPECT_TRUE(becomes_true([&] { return ask("/echo").status == 200; }));
  EXPECT_EQ(gone().size(), 1u);
}

TEST_F(HttpServerTest, AStreamsReaderThatNeverReadsIsClosed) {
  options_.write_time = 50ms;
  serve();
  RawCaller sleeper(path_);
  sleeper.get("/endless");
  ASSERT_TRUE(becomes_true([&] { return gone().size() == 1; }));
  RawCaller events(path_);
  events.get("/events");
  ASSERT_TRUE(becomes_true([&] { return server_->figures().streams == 2; }));
  put_event(std::string(1 << 20, 'e'));
  ASSERT_TRUE(becomes_true([&] { return gone().size() == 2; }));
  EXPECT_EQ(server_->figures().dropped_streams, 1u);
}

TEST_F(HttpServerTest, StreamsAreBoundedByUserAndInAll) {
  options_.most_streams_of_a_user = 3;
  serve();
  std::vector<RawCaller> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back(path_);
    readers.back().get("/events");
    EXPECT_EQ(status_in(readers.back().read_until("\r\n\r\n")), i < 3 ? 200 : 429);
  }
  readers.erase(readers.begin());
  EXPECT_TRUE(becomes_true([&] { return gone().size() == 1; }));
  readers.emplace_back(path_);
  readers.back().get("/events");
  EXPECT_EQ(status_in(readers.back().read_until("\r\n\r\n")), 200);
}

// --- callers that vanish -------------------------------------------------------------------------

TEST_F(HttpServerTest, WhoVanishesIsToldOnce) {
  serve();
  {
    RawCaller waits(path_), reads(path_), asks(path_);
    waits.get("/later");
    reads.get("/events");
    asks.get("/echo");
    ASSERT_TRUE(becomes_true([&] { return later().size() == 1 && handled("/echo") == 1; }));
    ASSERT_TRUE(becomes_true([&] { return server_->figures().streams == 1; }));
  }
  ASSERT_TRUE(becomes_true([&] { return gone().size() == 2; }));
  server_->answer(later()[0], HttpResponse{.body = "late"});
  server_->wake_streams();
  EXPECT_EQ(ask("/echo").status, 200);
  EXPECT_EQ(gone().size(), 2u);
}

std::size_t open_files() {
  std::size_t out = 0;
  DIR* const folder = ::opendir("/proc/self/fd");
  while (::readdir(folder) != nullptr) ++out;
  ::closedir(folder);
  return out;
}

TEST_F(HttpServerTest, AThousandConnectionsLeaveNothingBehind) {
  serve();
  const auto round = [&](int n) {
    RawCaller a(path_), b(path_), c(path_), d(path_);
    a.get("/later");
    b.get("/events");
    c.send("GET /half HTTP");
    d.get(n % 2 == 0 ? "/big" : "/echo");
    if (n % 2 != 0) {
      EXPECT_EQ(status_in(d.read_until(";")), 200);
    }
  };
  for (int i = 0; i < 50; ++i) round(i);
  const auto quiet = [&] {
    EXPECT_EQ(ask("/echo").status, 200);
    return ::mallinfo2().uordblks;
  };
  ASSERT_TRUE(becomes_true([&] { return open_files() < 20; }));
  const std::size_t files = open_files(), memory = quiet();
  for (int i = 0; i < 250; ++i) round(i);
  ASSERT_TRUE(becomes_true([&] { return open_files() <= files; })) << open_files();
  EXPECT_TRUE(becomes_true([&] { return quiet() < memory + (64 << 10); })) << quiet() - memory;
  EXPECT_GE(server_->figures().connections, 1200u);
}

// --- who gets what when there is too little ------------------------------------------------------

TEST_F(HttpServerTest, SixHundredConnectionsAreServed) {
  options_.most_connections = 700;
  options_.most_of_a_user = 700;
  serve();
  std::vector<RawCaller> callers;
  for (int i = 0; i < 600; ++i) callers.emplace_back(path_);
  // A user has a share of the time: with sanitizers on a slow machine 600 answers take 12 s.
  for (int round = 0; round < 3; ++round) {
    for (const RawCaller& each : callers) each.get("/echo");
    for (RawCaller& each : callers) EXPECT_EQ(status_in(each.read_until(";", 120s)), 200);
  }
}

// A user's idle connections make room for the same user's next ones; those in use do not.
TEST_F(HttpServerTest, OfAUserOnlySoManyConnectionsAreInUse) {
  options_.most_of_a_user = 10;
  serve();
  std::vector<RawCaller> idle, busy;
  for (int i = 0; i < 30; ++i) {
    idle.emplace_back(path_);
    idle.back().get("/echo");
    EXPECT_EQ(status_in(idle.back().read_until(";")), 200);
  }
  for (int i = 0; i < 20; ++i) {
    busy.emplace_back(path_);
    busy.back().get("/later");
    if (i >= 10) {
      EXPECT_EQ(status_in(busy.back().read_to_end()), 503);
    }
  }
  EXPECT_EQ(later().size(), 10u);
  EXPECT_EQ(ask("/live").status, 200);  // what is of kind health still has a place
  EXPECT_EQ(ask("/echo").status, 503);
}

// A program that passes requests on can compute beforehand whether a head fits.
TEST_F(HttpServerTest, AHeadIsAsLongAsItsCallerCounts) {
  serve();
  HttpAsk longest{.target = "/echo?"};
  longest.target += std::string(options_.most_head_bytes - head_bytes(longest), 'a');
  EXPECT_EQ(http_call(path_, longest, 10s)->status, 200);
  longest.target += "aa";
  EXPECT_EQ(http_call(path_, longest, 10s)->status, 431);
}

// A caller with half a head, half a body or an unread answer loses its place after a while.
TEST_F(HttpServerTest, WhoIsHeldUpGivesWayWhenAllPlacesAreTaken) {
  options_.most_connections = options_.most_of_a_user = 4;
  serve();
  std::vector<RawCaller> slow;
  for (int i = 0; i < 4; ++i) slow.emplace_back(path_);
  slow[0].send("G");
  slow[1].send("GET /echo HTTP/1.1\r\nHost: x\r\nX-A");
  slow[2].send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf");
  slow[3].get("/big");
  ASSERT_TRUE(becomes_true([&] { return handled("/big") == 1; }));
  EXPECT_EQ(ask("/live").status, 200);
  clock_.sleep_until(clock_.now() + 200ms);
  std::vector<RawCaller> later;
  for (int i = 0; i < 4; ++i) {
    later.emplace_back(path_);
    later.back().get("/later");
    EXPECT_TRUE(becomes_true([&] { return handled("/later") == i + 1; })) << i;
  }
}

// A caller that has had its last answer stays for a while to read it, but gives way to new callers.
TEST_F(HttpServerTest, WhoHasItsLastAnswerGivesWayAtOnce) {
  options_.most_connections = options_.most_of_a_user = 4;
  serve();
  std::vector<RawCaller> answered, later;
  for (int i = 0; i < 4; ++i) {
    answered.emplace_back(path_);
    answered.back().send("x\r\n\r\n");
    EXPECT_EQ(status_in(answered.back().read_until("\r\n\r\n")), 400);
  }
  for (int i = 0; i < 4; ++i) {
    later.emplace_back(path_);
    later.back().get("/later");
    EXPECT_TRUE(becomes_true([&] { return handled("/later") == i + 1; })) << i;
  }
}

TEST_F(HttpServerTest, ATokensRequestsCountAgainstItAlone) {
  options_.requests_a_second_of_a_user = 5;
  options_.carries = [](const Peer&) { return true; };
  // Each valid token is a person: the number behind "Bearer ".
  options_.share_of = [](const HttpRequest& head, const Peer& peer) {
    const auto said = find_field(head.fields, "Authorization").value_or("");
    const auto number = parse_number<uid_t>(said.substr(std::min<std::size_t>(said.size(), 7)));
    return number.value_or(peer.share());
  };
  serve();
  const auto status_with = [&](const std::string& token) {
    const auto answer = http_call(
        path_, {.target = "/echo", .fields = {{"Authorization", "Bearer " + token}}}, 10s);
    return answer.ok() ? answer->status : 0;
  };
  std::map<int, int> of_flood, of_wrong;
  for (int i = 0; i < 100; ++i) ++of_flood[status_with("1")];
  EXPECT_GE(of_flood[429], 50);
  EXPECT_EQ(of_flood[0], 0);  // each gets an answer: refusals close no connection here
  // A caller that makes up a new token each time has the limits of one user.
  for (int i = 0; i < 100; ++i) ++of_wrong[status_with("wrong" + std::to_string(i))];
  EXPECT_GE(of_wrong[429], 50);
  EXPECT_EQ(of_wrong[0], 0);
  EXPECT_EQ(status_with("2"), 200);
  EXPECT_EQ(ask("/live").status, 200);
}

TEST_F(HttpServerTest, TooManyRequestsAreRefusedAndWhoGoesOnIsClosed) {
  options_.requests_a_second_of_a_user = 5;
  serve();
  RawCaller caller(path_);
  std::vector<int> statuses;
  std::string last;
  for (int i = 0; i < 30 && !caller.is_closed(); ++i) {
    caller.get("/slow");
    last = caller.read_until("\r\n\r\n");
    if (status_in(last) == 200) caller.read_until(";");
    if (status_in(last) != 0) statuses.push_back(status_in(last));
    if (status_in(last) == 429) {
      EXPECT_NE(last.find("Retry-After: 1\r\n"), std::string::npos);
      caller.read_until("}\n");
      if (last.find("Connection: close") != std::string::npos) caller.read_to_end();
    }
  }
  EXPECT_TRUE(caller.is_closed());
  ASSERT_GE(statuses.size(), 10u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(statuses[static_cast<std::size_t>(i)], 200);
  EXPECT_GE(std::count(statuses.begin(), statuses.end(), 429), 5);
  EXPECT_EQ(handled("/slow"), std::count(statuses.begin(), statuses.end(), 200));
  // Other kinds have a rate of their own.
  EXPECT_TRUE(becomes_true([&] { return ask("/live").status == 200; }));
}

// Requests of a kind that takes long: one of another kind comes before nearly all of them.
TEST_F(HttpServerTest, AFloodOfOneKindDoesNotDelayAnother) {
  serve();
  std::vector<RawCaller> flood;
  for (int i = 0; i < 80; ++i) flood.emplace_back(path_);
  for (RawCaller& each : flood) {
    each.get("/echo");
    EXPECT_EQ(status_in(each.read_until(";")), 200);
  }
  const RawCaller first(path_);
  first.get("/hold");
  ASSERT_TRUE(becomes_true([&] { return handled("/held") == 1; }));
  for (const RawCaller& each : flood) each.get("/slow");
  holds_ = false;
  ASSERT_TRUE(becomes_true([&] { return handled("/slow") > 0; }));
  EXPECT_EQ(ask("/live").status, 200);
  EXPECT_LT(handled("/slow"), 60);  // of 80: 160 ms of work, of which 12 ms are done in 100 ms
  for (RawCaller& each : flood) EXPECT_EQ(status_in(each.read_until(";")), 200);
}

// A flood fills the queue of callers, and who comes later waits for all of them.
TEST_F(HttpServerTest, FewCallersWaitBeforeALateOne) {
  const UniqueFd listener = *listen_unix(path_, 0600);
  const sockaddr_un address = *address_of(path_);
  std::vector<UniqueFd> callers;
  while (callers.size() < 1000) {
    UniqueFd caller(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      break;
    callers.push_back(std::move(caller));
  }
  EXPECT_GE(callers.size(), 128u);
  EXPECT_LE(callers.size(), 300u);
}

TEST_F(HttpServerTest, AUsersFloodDoesNotKeepOthersOut) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become others";
  options_.requests_a_second_of_a_user = 200;
  options_.most_connections = 40;
  options_.most_of_a_user = 40;
  serve();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd stop_end(ends[0]);
  UniqueFd go_end(ends[1]);
  std::thread flood([&] {
    as_user(kNobody, [&]() -> std::string {
      ::close(ends[1]);
      std::vector<UniqueFd> sockets(60);
      for (char byte = 0; ::recv(stop_end.get(), &byte, 1, MSG_DONTWAIT) != 0;) {
        pollfd stop{stop_end.get(), POLLIN, 0};
        if (::poll(&stop, 1, 0) != 0) break;
        for (UniqueFd& each : sockets) {
          const std::string text = "GET /slow HTTP/1.1\r\nHost: x\r\n\r\n";
          if (::send(each.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
            continue;
          const sockaddr_un address = *address_of(path_);
          each = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
          (void)!::connect(each.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        }
      }
      return "";
    });
  });
  ASSERT_TRUE(becomes_true([&] { return handled("/slow") > 20; }));
  double longest = 0;
  for (int i = 0; i < 25; ++i) {
    const Instant begin = clock_.now();
    EXPECT_EQ(ask(i % 5 == 0 ? "/live" : "/echo").status, 200);
    longest = std::max(longest, seconds(clock_.now() - begin));
  }
  go_end = UniqueFd();
  flood.join();
  EXPECT_GT(server_->figures().refused, 20u);
  fmt::print("others waited for {:.3f} s at most beside a flood of {} callers\n", longest,
             server_->figures().connections);
}

double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return s(used.ru_utime) + s(used.ru_stime);
}

// Whatever callers leave unread, unsent or half closed, the thread sleeps until there is something
// to do: in one second it would use one if it did not.
TEST_F(HttpServerTest, NothingKeepsTheThreadBusy) {
  serve();
  RawCaller waits(path_), reads_not(path_), half(path_), ended(path_), events(path_);
  waits.get("/later");
  waits.send(std::string(50'000, 'x'));  // which nobody reads
  reads_not.get("/big");
  reads_not.get("/big");
  half.send("GET /");
  ended.get("/later");
  ended.end_sending();
  events.get("/events");
  events.send("more");
  events.end_sending();
  ASSERT_TRUE(becomes_true([&] { return later().size() == 2 && server_->figures().streams == 1; }));
  const double before = cpu_seconds();
  clock_.sleep_until(clock_.now() + 1s);
  EXPECT_LT(cpu_seconds() - before, 0.3);
}

// --- listening -----------------------------------------------------------------------------------

TEST_F(HttpServerTest, TheSocketHasItsModeAndOneListener) {
  auto socket = listen_unix(path_, 0660);
  ASSERT_TRUE(socket.ok());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(listen_unix(path_, 0660).error().code, Errc::busy);
  socket = Error{Errc::io, "closed"};
  serve();  // in place of the one that nobody listens on
  EXPECT_EQ(ask("/echo").status, 200);
  server_.reset();
  EXPECT_EQ(::stat(path_.c_str(), &info), -1);
}

TEST(ListenLoopback, IsNowhereElse) {
  for (const char* const each :
       {"0.0.0.0:0", "10.0.0.1:0", "[::]:0", "[::1]", "127.0.0.1", "localhost:0", "", ":", ":80",
        "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "128.0.0.1:0", "::1:0"})
    EXPECT_EQ(listen_loopback(each).error().code, Errc::invalid_argument) << each;
  EXPECT_TRUE(listen_loopback("127.0.0.1:0").ok());
  EXPECT_TRUE(listen_loopback("127.9.9.9:0").ok());
}

TEST(ListenTcp, IsOnAnyAddressButNoName) {
  for (const char* const each : {"0.0.0.0:0", "127.0.0.1:0"})
    EXPECT_TRUE(listen_tcp(each).ok()) << each;
  for (const char* const each :
       {"localhost:0", "", ":", ":80", "0.0.0.0", "0.0.0.0:", "0.0.0.0:65536", "0.0.0.0:-1", "[::]",
        "[]:0", "::1:0", "[::1:0", "[0.0.0.0]:0", "[fe80::1%lo]:0", "0:0", "10.1:0"})
    EXPECT_EQ(listen_tcp(each).error().code, Errc::invalid_argument) << each;
  EXPECT_EQ(listen_tcp("192.0.2.1:0").error().code, Errc::io);  // no machine has it (RFC 5737)
}

// On a machine with IPv6, one port serves both.
TEST(ListenTcp, OfIPv6ServesIPv4) {
  const auto listening = listen_tcp("[::]:0");
  if (!listening.ok()) GTEST_SKIP() << listening.error().message;
  sockaddr_in6 at{};
  socklen_t size = sizeof at;
  ASSERT_EQ(::getsockname(listening->get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
  const sockaddr_in to{
      .sin_family = AF_INET, .sin_port = at.sin6_port, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const UniqueFd caller(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(caller.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
}

// Callers over TCP. ask() returns all that comes back until the connection ends, with "reset"
// behind it if the connection was reset.
class TcpCallers {
 public:
  TcpCallers() : listening(*listen_loopback("127.0.0.1:0")) {
    socklen_t size = sizeof address_;
    CHECK(::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&address_), &size) == 0);
  }
  std::string ask(const std::string& text) const {
    const UniqueFd caller(::socket(AF_INET, SOCK_STREAM, 0));
    CHECK(::connect(caller.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof address_) ==
          0);
    (void)::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
    std::string out;
    char buffer[4096];
    ssize_t n = 0;
    while ((n = ::recv(caller.get(), buffer, sizeof buffer, 0)) > 0)
      out.append(buffer, static_cast<std::size_t>(n));
    return n < 0 ? out + "reset" : out;
  }
  UniqueFd listening;

 private:
  sockaddr_in address_{};
};

TEST_F(HttpServerTest, CallersOfALoopbackAddressAreNobody) {
  TcpCallers callers;
  server_ = *HttpServer::create(std::move(callers.listening), clock_, options_);
  const std::string got = callers.ask("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_NE(got.find(" of 4294967295"), std::string::npos) << got;
}

// The caller is turned away before its bytes are read. It reads the refusal, whatever it has sent.
TEST_F(HttpServerTest, WhoIsTurnedAwayReadsWhy) {
  TcpCallers callers;
  std::atomic<bool> wanted = false;
  options_.turn_away = [&](const Peer&) {
    return wanted ? std::nullopt : std::optional(error_response(403, "not yours"));
  };
  server_ = *HttpServer::create(std::move(callers.listening), clock_, options_);
  for (const std::string& body : {std::string(), std::string(20'000, 'x')}) {
    const std::string got = callers.ask("POST /echo HTTP/1.0\r\n\r\n" + body);
    EXPECT_EQ(status_in(got), 403) << got;
    EXPECT_NE(got.find("not yours"), std::string::npos) << got;
    EXPECT_EQ(got.find("reset"), std::string::npos) << got;
  }
  EXPECT_EQ(handled("/echo"), 0);
  wanted = true;
  EXPECT_EQ(status_in(callers.ask("GET /echo HTTP/1.0\r\n\r\n")), 200);
}

}  // namespace
}  // namespace derate
