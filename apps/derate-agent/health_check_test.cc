#include "health_check.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "service/http/http_server.h"

namespace derate::agent {
namespace {

struct HealthCheckTest : testing::Test {
  std::unique_ptr<HttpServer> serve(const std::string& path, HttpReply reply) {
    HttpServerOptions options;
    options.kind_of = [](const HttpRequest&) { return HttpKind::health; };
    options.handle = [this, reply = std::move(reply)](const HttpCall& call) {
      asked = call.request.method + " " + call.request.target;
      return reply;
    };
    return *HttpServer::create(*listen_unix(path, 0600), clock, std::move(options));
  }

  Folder folder;
  SystemClock clock;
  std::string asked;
};

TEST_F(HealthCheckTest, IsTheAnswersFirstLine) {
  const std::string path = folder.file("api.sock");
  const std::vector<std::string> sockets{folder.file("none.sock"), path};
  {
    const auto server = serve(path, HttpResponse{.body = "fine\nmore\n"});
    const auto check = check_health(sockets, "/livez");
    ASSERT_TRUE(check.ok());
    EXPECT_TRUE(check->is_good);
    EXPECT_EQ(check->line, "fine");
    EXPECT_EQ(asked, "GET /livez");
  }
  const auto server = serve(path, HttpResponse{.status = 503, .body = "GPU 0 is \x1b lost"});
  const auto check = check_health(sockets, "/readyz");
  ASSERT_TRUE(check.ok());
  EXPECT_FALSE(check->is_good);
  EXPECT_EQ(check->line, "GPU 0 is ? lost");
}

TEST_F(HealthCheckTest, WithoutDeratedItIsBad) {
  const std::string path = folder.file("api.sock");
  const auto none = check_health({path}, "/livez");
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE(none->is_good);
  EXPECT_NE(none->line.find("derated is not running"), std::string::npos) << none->line;
  const auto server = serve(path, HttpLater{});
  const auto hangs = check_health({path}, "/livez", std::chrono::milliseconds(50));
  ASSERT_TRUE(hangs.ok());
  EXPECT_FALSE(hangs->is_good);
  EXPECT_FALSE(hangs->line.empty());
}

TEST_F(HealthCheckTest, ChecksNothingElse) {
  for (const char* path : {"", "/", "/metrics", "livez", "/v1/gpus", "/livez?x"}) {
    const auto check = check_health({folder.file("api.sock")}, path);
    ASSERT_FALSE(check.ok()) << path;
    EXPECT_EQ(check.error().code, Errc::invalid_argument);
    EXPECT_NE(check.error().message.find(path), std::string::npos);
  }
}

}  // namespace
}  // namespace derate::agent
