#include "service/http/api_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "base/json.h"
#include "base/test_folder.h"
#include "service/http/http_call.h"

namespace derate {
namespace {

constexpr Duration kPatience = std::chrono::seconds(20);

// Calls a server in a thread of its own, while this one does what the loop does.
class ApiServerTest : public testing::Test {
 protected:
  void listen(Role role, const std::string& token = {}) {
    ApiServer::Options options{.version = "1.2"};
    options.admit = [=, this](const HttpRequest&,
                              const Peer& peer) -> std::variant<Peer, HttpResponse> {
      if (!admits) return error_response(401, "no such token");
      Peer out = peer;
      out.role = role;
      out.token = token;
      return out;
    };
    options.refused = [this](const Peer&, const std::string& why) {
      refusals += why.find("wants the role operator") != std::string::npos ? 1 : 0;
    };
    api = std::make_unique<ApiServer>(clock, desk, std::move(options));
    api->add<StatusRead>([](const StatusRead& request, const Peer&) {
      return Result<Json>(Json{{"gpus", Json::array()}, {"asked", request.gpus}});
    });
    api->add_reading<AttributionRead>([this](const AttributionRead&) {
      return [may_read = may_read, count = reads]() -> Result<Json> {
        may_read.wait();
        ++*count;
        return Error{Errc::not_found, "no GPU"};
      };
    });
    api->add_stream(
        "/v1/events", "text/event-stream", [this](const HttpRequest&, const Peer&) -> HttpReply {
          return HttpStream{
              .next = [this] { return std::optional(first.exchange(false) ? "data: 1\n\n" : ""); }};
        });
    api->add_page("/hello", HttpKind::health, [](const HttpRequest&, const Peer&) -> HttpReply {
      return HttpResponse{.content_type = "text/plain", .body = "hello\n"};
    });
    desk.operators.add<PolicySet>([this](const PolicySet& request, const Peer& peer) {
      asked.push_back(request.policy + " by " + caller_name(peer));
      late = peer.connection;
      return request.dry_run ? CommandRouter::Answer()
                             : CommandRouter::Answer(
                                   Json{{"ok", false}, {"message", "GPU 0"}, {"code", "busy"}});
    });
    ASSERT_TRUE(api->listen(*listen_unix(path(), 0666)).ok());
  }
  std::string path() { return folder.path() + "/api.sock"; }

  std::future<Result<HttpResponse>> begin(const std::string& method, const std::string& target,
                                          const std::string& body = {}) {
    return std::async(std::launch::async, [=, at = path()] {
      return http_call(at, {.method = method, .target = target, .body = body}, kPatience);
    });
  }
  // What the loop does.
  void serve() {
    api->serve();
    desk.queue.do_round();
    desk.queue.answer_round();
  }
  // The answer's status and body, after the loop has served it.
  std::pair<int, Json> ask(const std::string& method, const std::string& target,
                           const std::string& body = {}) {
    auto answer = begin(method, target, body);
    while (answer.wait_for(std::chrono::milliseconds(2)) != std::future_status::ready) serve();
    const auto response = answer.get();
    if (!response.ok()) return {0, response.error().message};
    return {response->status, parse_json(response->body)};
  }

  Folder folder;
  SystemClock clock;
  RequestDesk desk{clock, {}};
  std::shared_ptr<std::atomic<int>> reads = std::make_shared<std::atomic<int>>(0);
  std::promise<void> reading;
  std::shared_future<void> may_read = reading.get_future().share();
  std::vector<std::string> asked;
  std::uint64_t late = 0;
  std::atomic<int> refusals = 0;
  std::atomic<bool> admits = true, first = true;
  std::unique_ptr<ApiServer> api;
};

TEST_F(ApiServerTest, AnswersWhatIsKnownWithoutTheLoop) {
  listen(Role::reader);
  const auto response = begin("GET", "/v1/status?gpus=0,1").get();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(parse_json(response->body),
            Json({{"ok", true}, {"gpus", Json::array()}, {"asked", "0,1"}}));
}

TEST_F(ApiServerTest, TellsWhatThereIs) {
  listen(Role::reader);
  const auto [status, index] = ask("GET", "/v1");
  EXPECT_EQ(status, 200);
  EXPECT_EQ(index["operations"][0]["path"], "/v1/policy-set");
  EXPECT_NE(json_text(index["pages"]).find("/hello"), std::string::npos);
  EXPECT_EQ(ask("GET", "/v1/openapi.json").second["info"]["version"], "1.2");
}

TEST_F(ApiServerTest, RefusesWithAStatusAndAReason) {
  listen(Role::operates);
  EXPECT_EQ(ask("GET", "/v1/statsu").first, 404);
  EXPECT_NE(json_text(ask("GET", "/v1/statsu").second).find("did you mean '/v1/status'"),
            std::string::npos);
  EXPECT_EQ(ask("POST", "/v1/status").first, 405);
  EXPECT_EQ(ask("GET", "/v1/policy-set").first, 405);
  EXPECT_EQ(ask("POST", "/hello").first, 405);
  EXPECT_EQ(ask("GET", "/v1/status?polcy=1").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set", "{").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set", "").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set", "[]").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set", R"({"command": "release"})").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set", R"({"policy": 7})").first, 400);
  EXPECT_EQ(ask("POST", "/v1/policy-set?policy=assure").first, 400);
}

TEST_F(ApiServerTest, TheLoopDoesWhatItIsAskedForInTheNameOfTheCaller) {
  listen(Role::operates);
  const auto [status, answer] = ask("POST", "/v1/policy-set", R"({"policy": "assure"})");
  EXPECT_EQ(status, 207);
  EXPECT_EQ(answer["code"], "busy");
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked.front(), "assure by uid " + std::to_string(::getuid()));
}

TEST_F(ApiServerTest, AnAnswerMayComeLater) {
  listen(Role::operates);
  auto answer = begin("POST", "/v1/policy-set", R"({"policy": "assure", "dry_run": true})");
  while (late == 0) serve();
  desk.operators.later(late, Json{{"message", "done"}});
  const auto response = answer.get();
  ASSERT_TRUE(response.ok());
  EXPECT_EQ(response->status, 200);
  EXPECT_EQ(parse_json(response->body)["message"], "done");
}

TEST_F(ApiServerTest, ALowerRoleIsRefusedBeforeTheLoopIsAsked) {
  listen(Role::user);
  const auto [status, answer] = ask("POST", "/v1/policy-set", R"({"policy": "assure"})");
  EXPECT_EQ(status, 403);
  EXPECT_NE(json_text(answer).find("wants the role operator"), std::string::npos);
  EXPECT_EQ(refusals, 1);
  EXPECT_TRUE(asked.empty());
}

// A stream ends if its token expires or is revoked, or its user may no longer read, even without
// events.
TEST_F(ApiServerTest, AStreamEndsWithTheRightToReadIt) {
  listen(Role::reader, "dashboard");
  std::atomic<bool> begun = false;
  auto stream = std::async(std::launch::async, [&, at = path()] {
    return http_stream(at, {.target = "/v1/events", .fields = {{"Accept", "text/event-stream"}}},
                       -1, [&](std::string_view piece) {
                         begun = begun || !piece.empty();
                         return true;
                       });
  });
  const auto ends_within = [&](Duration time) {
    for (const Instant end = clock.now() + time; clock.now() < end;) {
      serve();
      if (stream.wait_for(std::chrono::milliseconds(5)) == std::future_status::ready) return true;
    }
    return false;
  };
  while (!begun) serve();
  EXPECT_FALSE(ends_within(std::chrono::milliseconds(1100)));
  admits = false;
  EXPECT_TRUE(ends_within(std::chrono::seconds(20)));
  if (stream.wait_for(Duration{}) != std::future_status::ready) api.reset();
}

TEST_F(ApiServerTest, ATokenHasNothingOfItsOwn) {
  listen(Role::operates, "dashboard");
  EXPECT_EQ(ask("POST", "/v1/run-release", "{}").first, 403);
  EXPECT_EQ(ask("POST", "/v1/policy-set", R"({"policy": "assure"})").first, 207);
  EXPECT_EQ(asked.front(), "assure by token dashboard");
}

TEST_F(ApiServerTest, FilesAreReadBesideAndInABoundedNumber) {
  listen(Role::reader);
  std::vector<std::future<Result<HttpResponse>>> begun;
  for (std::size_t i = 0; i <= ApiServer::kMostReadingOfOneUser; ++i)
    begun.push_back(begin("GET", "/v1/attribution"));
  // One is too many; the server answers others all the while.
  std::size_t refused = 0;
  while (refused == 0) {
    EXPECT_EQ(ask("GET", "/v1/status").first, 200);
    for (auto& read : begun) refused += is_ready(read) ? 1 : 0;
  }
  EXPECT_EQ(refused, 1u);
  reading.set_value();
  std::size_t busy = 0;
  for (auto& read : begun) {
    const auto response = read.get();
    ASSERT_TRUE(response.ok());
    busy += response->status == 503 ? 1 : 0;
    EXPECT_TRUE(response->status == 503 || response->status == 404) << response->status;
  }
  EXPECT_EQ(busy, 1u);
}

TEST_F(ApiServerTest, ALoopThatDoesNotServeHasABoundedQueue) {
  listen(Role::operates);
  std::vector<std::future<Result<HttpResponse>>> all;
  for (std::size_t i = 0; i < RequestQueue::kMostOfOneUser + 3; ++i)
    all.push_back(begin("POST", "/v1/policy-set", R"({"policy": "assure"})"));
  std::size_t refused = 0;
  while (refused < 3) {
    refused = 0;
    for (auto& each : all) refused += is_ready(each) ? 1 : 0;
  }
  EXPECT_EQ(refused, 3u);
  desk.queue.refuse({Errc::busy, "derated ends"});
  for (auto& each : all) EXPECT_EQ(each.get()->status, 503);
}

// What is being read when the server goes is read on, by values of its own.
TEST_F(ApiServerTest, GoesWhileFilesAreRead) {
  listen(Role::reader);
  std::vector<std::future<Result<HttpResponse>>> all;
  for (std::size_t i = 0; i < ApiServer::kMostReadingOfOneUser; ++i)
    all.push_back(begin("GET", "/v1/attribution"));
  while (api->figures().requests < all.size()) {
  }
  api.reset();
  for (auto& each : all) EXPECT_FALSE(each.get().ok());
  reading.set_value();
  for (int i = 0; i < 5000 && *reads < static_cast<int>(all.size()); ++i)
    clock.sleep_until(clock.now() + std::chrono::milliseconds(2));
  EXPECT_EQ(*reads, static_cast<int>(all.size()));
}

}  // namespace
}  // namespace derate
