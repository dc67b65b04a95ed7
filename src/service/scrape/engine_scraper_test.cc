#include "service/scrape/engine_scraper.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <thread>

#include "base/unique_fd.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A server of one answer: `serve` gets each connection after its request has come.
class Server {
 public:
  explicit Server(std::function<void(int)> serve) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in at{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), size), 0);
    EXPECT_EQ(::listen(socket_.get(), 4), 0);
    EXPECT_EQ(::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this, serve = std::move(serve)] {
      const UniqueFd client(::accept(socket_.get(), nullptr, nullptr));
      if (!client.valid()) return;
      char head[4096];
      request_ = std::string(head, static_cast<std::size_t>(
                                       std::max<ssize_t>(0, ::recv(client.get(), head, 4096, 0))));
      serve(client.get());
    });
  }
  ~Server() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ScrapeTarget target() const {
    return {.service = "chat", .url = {"127.0.0.1", port_, "/metrics"}, .every = 1s};
  }
  // After its thread has served.
  const std::string& request() const { return request_; }

 private:
  UniqueFd socket_;
  std::uint16_t port_ = 0;
  std::string request_;
  std::thread thread_;
};

void send_text(int to, const std::string& text) {
  (void)::send(to, text.data(), text.size(), MSG_NOSIGNAL);
}

std::string answer(const std::string& status, const std::string& fields, const std::string& body) {
  return fmt::format("HTTP/1.1 {}\r\nContent-Length: {}\r\n{}\r\n{}", status, body.size(), fields,
                     body);
}

constexpr const char* kPage = "vllm:num_requests_running{model_name=\"m\"} 3\n";

std::string outcome(const std::string& text) {
  SystemClock clock;
  const Server server([&](int to) { send_text(to, text); });
  const auto read = scrape(server.target(), clock);
  return read.ok() ? fmt::format("{} running", read->state.running.value_or(-1))
                   : read.error().message;
}

TEST(EngineScraper, ReadsAPage) {
  EXPECT_EQ(outcome(answer("200 OK", "", kPage)), "3 running");
  SystemClock clock;
  std::string request;
  {
    const Server server([&](int to) { send_text(to, answer("200 OK", "", kPage)); });
    ASSERT_TRUE(scrape(server.target(), clock).ok());
    request = server.request();
  }
  EXPECT_TRUE(request.starts_with("GET /metrics HTTP/1.1\r\n")) << request;
  EXPECT_NE(request.find("Accept-Encoding: identity"), std::string::npos) << request;
}

TEST(EngineScraper, SaysWhatIsNoPage) {
  EXPECT_EQ(outcome(answer("302 Found", "Location: http://169.254.169.254/\r\n", "")),
            "HTTP status 302: redirects are not followed");
  EXPECT_EQ(outcome(answer("404 Not Found", "", "no\nsuch page")),
            "HTTP status 404: no\\x0asuch page");
  EXPECT_EQ(outcome(answer("200 OK", "Content-Encoding: gzip\r\n", "\x1f\x8b")),
            "Content-Encoding 'gzip': allowed is identity");
  EXPECT_NE(outcome(answer("200 OK", "", "vllm:num_requests_running 1e308\n")).find("308"),
            std::string::npos);
  EXPECT_NE(outcome("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "");
  EXPECT_NE(outcome("").find("closed the connection"), std::string::npos);
}

TEST(EngineScraper, AServerThatHangsOrNeverEndsCostsASecond) {
  SystemClock clock;
  std::atomic<bool> ended{false};
  const Server silent([&](int) {
    while (!ended) (void)clock.sleep_until(clock.now() + 10ms);
  });
  const Instant begin = clock.now();
  EXPECT_FALSE(scrape(silent.target(), clock).ok());
  const Server endless([&](int to) {
    send_text(to, "HTTP/1.1 200 OK\r\n\r\n");
    while (!ended && ::send(to, kPage, 20, MSG_NOSIGNAL) > 0)
      (void)clock.sleep_until(clock.now() + 1ms);
  });
  EXPECT_FALSE(scrape(endless.target(), clock).ok());
  ended = true;
  EXPECT_LT(clock.now() - begin, 2 * kPagePatience + 5s);
}

TEST(EngineScraper, AnEngineThatIsAwayIsLookedForLessOften) {
  EXPECT_EQ(scrape_after(0, 250ms), Duration(250ms));
  EXPECT_EQ(scrape_after(1, 250ms), Duration(1s));
  EXPECT_EQ(scrape_after(2, 250ms), Duration(2s));
  EXPECT_EQ(scrape_after(100, 250ms), Duration(8s));
  EXPECT_EQ(scrape_after(1, 5s), Duration(5s));
}

TEST(EngineScraper, ATargetIsAsTheDaemonNamesIt) {
  const auto target = scrape_target({.name = "chat",
                                     .metrics = "http://[::1]:8000/metrics",
                                     .every_seconds = 0.25,
                                     .wanted_model = "m"});
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->url.authority(), "[::1]:8000");
  EXPECT_EQ(target->every, Duration(250ms));
  EXPECT_FALSE(scrape_target({.name = "chat", .metrics = "file:///etc/passwd"}).ok());
}

}  // namespace
}  // namespace derate
