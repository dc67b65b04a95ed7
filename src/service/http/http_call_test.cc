#include "service/http/http_call.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/test_folder.h"
#include "service/http/test_http.h"
#include "service/transport/unix_socket.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A server that answers each caller with the same bytes, whatever they ask, and hangs up.
class HttpCallTest : public testing::Test {
 protected:
  ~HttpCallTest() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Before it says anything it reads as much as `until`, if that is not empty.
  void say(const std::string& text, const std::string& until = "\r\n\r\n", bool hangs_up = true) {
    socket_ = *listen_unix(path_, 0600);
    thread_ = std::thread([=, this] {
      while (!stop_) {
        pollfd wanted{socket_.get(), POLLIN, 0};
        if (::poll(&wanted, 1, 10) <= 0) continue;
        UniqueFd caller(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        char buffer[4096];
        heard_.clear();
        while (heard_.find(until) == std::string::npos) {
          const ssize_t n = ::recv(caller.get(), buffer, sizeof buffer, 0);
          if (n <= 0) break;
          heard_.append(buffer, static_cast<std::size_t>(n));
        }
        (void)::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL);
        while (!hangs_up && !stop_ && ::recv(caller.get(), buffer, 1, MSG_DONTWAIT) != 0)
          clock_.sleep_until(clock_.now() + 1ms);
      }
    });
  }
  // From the last caller; the server goes.
  std::string heard() {
    stop_ = true;
    thread_.join();
    return heard_;
  }

  const Folder folder_;
  const std::string path_ = folder_.file("api.sock");
  SystemClock clock_;
  UniqueFd socket_;
  std::string heard_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(HttpCallTest, SendsWhatIsAskedAndGivesTheAnswer) {
  say("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nX-A: b\r\n\r\nnone", "body");
  const auto answer = http_call(
      path_,
      {.method = "POST", .target = "/v1/a?b=c", .fields = {{"X-B", "d\r\nX-C: e"}}, .body = "body"},
      10s);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->content_type, "text/plain");
  EXPECT_EQ(find_field(answer->fields, "x-a"), "b");
  EXPECT_EQ(answer->body, "none");
  EXPECT_EQ(heard(),
            "POST /v1/a?b=c HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-B: dX-C: e\r\n"
            "Content-Length: 4\r\n\r\nbody");
}

TEST_F(HttpCallTest, WhatFailsSaysHow) {
  EXPECT_EQ(http_call(path_, {.target = "/"}, 1s).error().code, Errc::not_found);
  EXPECT_EQ(http_call(path_, {.target = "/a b"}, 1s).error().code, Errc::invalid_argument);
  EXPECT_EQ(http_call(path_, {.target = ""}, 1s).error().code, Errc::invalid_argument);
  say("SSH-2.0\r\n\r\n");
  EXPECT_EQ(http_call(path_, {.target = "/"}, 10s).error().code, Errc::io);
}

TEST_F(HttpCallTest, AnAnswerThatIsCutShortIsNone) {
  say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  const auto answer = http_call(path_, {.target = "/"}, 10s);
  EXPECT_EQ(answer.error().code, Errc::io);
  EXPECT_NE(answer.error().message.find("before its answer's end"), std::string::npos);
}

TEST_F(HttpCallTest, AnAnswerThatDoesNotComeIsNotWaitedFor) {
  say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", "\r\n\r\n", false);
  EXPECT_EQ(http_call(path_, {.target = "/"}, 30ms).error().code, Errc::gpu_stuck);
}

TEST_F(HttpCallTest, AnAnswerIsNotReadBeyondItsBound) {
  say("HTTP/1.1 200 OK\r\n\r\n" + std::string(100'000, 'a'));
  const auto answer = http_call(path_, {.target = "/", .most_bytes = 99'999}, 10s);
  EXPECT_EQ(answer.error().code, Errc::io);
  EXPECT_EQ(http_call(path_, {.target = "/", .most_bytes = 100'000}, 10s)->body.size(), 100'000u);
}

// A server that refuses hangs up before all has been sent.
TEST_F(HttpCallTest, ARefusalIsReadThoughTheRestCannotBeSent) {
  say("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
  const auto answer =
      http_call(path_, {.method = "PUT", .target = "/", .body = std::string(8 << 20, 'a')}, 10s);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 413);
  EXPECT_EQ(answer->body, "no");
}

TEST_F(HttpCallTest, AStreamIsGivenByPieces) {
  say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
  std::string got;
  const auto answer = http_stream(path_, {.target = "/"}, -1, [&](std::string_view piece) {
    got += piece;
    return true;
  });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(got, "abcd");
  EXPECT_EQ(answer->body, "");
}

TEST_F(HttpCallTest, AStreamThatIsRefusedOrBreaksIsNoStream) {
  say("HTTP/1.1 429 Too Many\r\nContent-Length: 5\r\n\r\nlater");
  const auto never = [](std::string_view) { return ADD_FAILURE(), true; };
  const auto answer = http_stream(path_, {.target = "/"}, -1, never);
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(answer->body, "later");
}

TEST_F(HttpCallTest, AStreamEndsWhenItIsToldTo) {
  say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n", "\r\n\r\n",
      false);
  std::string got;
  const UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  const auto stopped = http_stream(path_, {.target = "/"}, stop.get(), [&](std::string_view piece) {
    got += piece;
    if (got == "ab") (void)::eventfd_write(stop.get(), 1);
    return true;
  });
  EXPECT_TRUE(stopped.ok());
  EXPECT_EQ(got, "ab");
  const auto enough =
      http_stream(path_, {.target = "/"}, -1, [](std::string_view) { return false; });
  EXPECT_TRUE(enough.ok());
}

TEST_F(HttpCallTest, AStreamThatBreaksOffIsAnError) {
  say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
  const auto answer =
      http_stream(path_, {.target = "/"}, -1, [](std::string_view) { return true; });
  EXPECT_EQ(answer.error().code, Errc::io);
}

}  // namespace
}  // namespace derate
