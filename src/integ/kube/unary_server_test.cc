#include "integ/kube/unary_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <thread>

#include "base/test_folder.h"
#include "base/test_wait.h"
#include "base/unix_address.h"
#include "integ/kube/unary_call.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

const std::string kListPods = "/v1alpha1.Pods/ListPods";

UniqueFd listening_socket(const std::string& path) {
  UniqueFd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_un address = *address_of(path);
  EXPECT_EQ(::bind(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(out.get(), 64), 0);
  return out;
}

struct UnaryServerTest : testing::Test {
  void SetUp() override {
    if (!can_call()) GTEST_SKIP() << "built without libnghttp2";
  }
  void begin(UnaryServerOptions options = {}) {
    options.methods = {"/v1.Other/List", kListPods};
    server = *UnaryServer::create(listening_socket(path), std::move(options), clock);
  }
  Result<std::string> ask(const std::string& method = kListPods, std::string request = "") const {
    UnaryCall what;
    what.socket = path;
    what.method = method;
    what.request = std::move(request);
    what.timeout = 20s;
    return call(what, clock);
  }
  std::string refused(const std::string& method = kListPods, std::string request = "") const {
    const auto answer = ask(method, std::move(request));
    return answer.ok() ? "answered" : answer.error().message;
  }

  Folder folder;
  std::string path = folder.file("pods.sock");
  SystemClock clock;
  std::unique_ptr<UnaryServer> server;
};

TEST_F(UnaryServerTest, GivesTheLatestAnswer) {
  begin();
  const std::string not_yet = kListPods + ": gRPC status '9' there is no answer yet";
  EXPECT_EQ(refused(), not_yet);
  for (const char* answer : {"first", "", "second"}) {
    server->set_answer(answer);
    ASSERT_TRUE(ask().ok());
    EXPECT_EQ(*ask(), answer);
    EXPECT_EQ(*ask("/v1.Other/List"), answer);
  }
  server->clear_answer();
  EXPECT_EQ(refused(), not_yet);
}

TEST_F(UnaryServerTest, HasNoOtherMethod) {
  begin();
  server->set_answer("here");
  for (const std::string& method :
       {std::string("/"), kListPods + "x", kListPods + std::string(500, 'x'),
        std::string("/v1alpha1.Pods/WatchPods")})
    EXPECT_EQ(ask(method).error().code, Errc::not_supported) << method;
}

// Sizes around those of frames and of HTTP/2's first window.
TEST_F(UnaryServerTest, AnyBytesComeThrough) {
  begin();
  for (const std::size_t size : {1, 16378, 16379, 16380, 65529, 65530, 65531, 70000, 5 << 20}) {
    std::string answer(size, '\0');
    for (std::size_t i = 0; i < size; ++i) answer[i] = static_cast<char>(i * i >> 3);
    server->set_answer(answer);
    const auto got = ask();
    ASSERT_TRUE(got.ok()) << size << ": " << got.error().message;
    EXPECT_TRUE(*got == answer) << size;
  }
}

TEST_F(UnaryServerTest, ARequestIsBounded) {
  begin();
  server->set_answer("here");
  EXPECT_EQ(*ask(kListPods, std::string((64 << 10) - 5, 'x')), "here");
  EXPECT_FALSE(ask(kListPods, std::string(64 << 10, 'x')).ok());
  EXPECT_FALSE(ask(kListPods, std::string(8 << 20, 'x')).ok());
  EXPECT_EQ(*ask(), "here");
}

// An answer that changes while others read is one of those that were set, whole.
TEST_F(UnaryServerTest, CallersAtTheSameTimeGetWholeAnswers) {
  begin();
  std::atomic<bool> ended = false;
  std::atomic<int> answered = 0, wrong = 0;
  server->set_answer(std::string(200'000, 'a'));
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      while (!ended) {
        const auto got = ask();
        const bool whole = got.ok() && got->size() == 200'000 &&
                           got->find_first_not_of(got->front()) == std::string::npos;
        ++(whole ? answered : wrong);
      }
    });
  for (int i = 0; answered < 200 && wrong == 0; ++i) {
    server->set_answer(std::string(200'000, static_cast<char>('a' + i % 20)));
    clock.sleep_until(clock.now() + 1ms);
  }
  ended = true;
  for (std::thread& each : callers) each.join();
  EXPECT_EQ(wrong, 0);
}

// --- Callers that are no client ------------------------------------------------------------------

// A frame of HTTP/2: its size, type, flags and stream, and what is in it (RFC 9113, 4.1).
std::string raw_frame(char type, char flags, char stream, const std::string& body) {
  std::string out(9, '\0');
  out[1] = static_cast<char>(body.size() >> 8);
  out[2] = static_cast<char>(body.size() & 0xff);
  out[3] = type;
  out[4] = flags;
  out[8] = stream;
  return out + body;
}

// A field as HPACK has it without an index or Huffman's code (RFC 7541, 6.2.2).
std::string raw_field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name +
         static_cast<char>(value.size()) + value;
}

// The begin of a connection whose windows are as large as they may be.
std::string raw_begin() {
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" +
         raw_frame(4, 0, 0, std::string("\0\4\x7f\xff\xff\xff", 6)) +
         raw_frame(8, 0, 0, "\x7f\xf0\xff\xff");
}

// A call whose request has no bytes.
std::string raw_call(char stream) {
  return raw_frame(1, 5, stream,
                   raw_field(":method", "POST") + raw_field(":scheme", "http") +
                       raw_field(":path", kListPods) + raw_field(":authority", "x") +
                       raw_field("content-type", "application/grpc"));
}

class RawPeer {
 public:
  explicit RawPeer(const std::string& path)
      : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const sockaddr_un address = *address_of(path);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address),
              0);
  }
  void send(std::string_view bytes) const {
    (void)::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  bool is_closed_by_server() const {
    pollfd wanted{socket_.get(), 0, 0};
    return ::poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLHUP | POLLERR)) != 0;
  }
  // All that comes until nothing comes for 5 s, `until` is in it, or the server closes.
  std::string read_until(const std::string& until) const {
    std::string out;
    pollfd wanted{socket_.get(), POLLIN, 0};
    while (out.find(until) == std::string::npos && ::poll(&wanted, 1, 5000) > 0) {
      std::array<char, 65536> buffer{};
      const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
      if (n <= 0) break;
      out.append(buffer.data(), static_cast<std::size_t>(n));
    }
    return out;
  }

 private:
  UniqueFd socket_;
};

TEST_F(UnaryServerTest, ACallByHandIsAnswered) {
  begin();
  server->set_answer("by hand");
  const RawPeer peer(path);
  peer.send(raw_begin() + raw_call(1));
  EXPECT_NE(peer.read_until("by hand").find("by hand"), std::string::npos);
  peer.send(raw_call(3));  // on the same connection
  EXPECT_NE(peer.read_until("by hand").find("by hand"), std::string::npos);
}

TEST_F(UnaryServerTest, WhoSaysNothingIsClosed) {
  begin({.idle_time = 100ms});
  const RawPeer peer(path), begun(path);
  begun.send(raw_begin());
  EXPECT_TRUE(becomes_true([&] { return peer.is_closed_by_server(); }));
  EXPECT_TRUE(becomes_true([&] { return begun.is_closed_by_server(); }));
}

// All places are taken by callers without a call, and give way.
TEST_F(UnaryServerTest, WhoHasNoCallGivesWay) {
  begin();
  server->set_answer("here");
  std::vector<std::unique_ptr<RawPeer>> idle;
  for (int i = 0; i < 9; ++i) idle.push_back(std::make_unique<RawPeer>(path));
  EXPECT_EQ(*ask(), "here");
  EXPECT_TRUE(idle.front()->is_closed_by_server());
  EXPECT_FALSE(idle.back()->is_closed_by_server());
}

// It has its place until its time is over, and nobody else waits for it.
TEST_F(UnaryServerTest, WhoDoesNotReadIsClosedAndHoldsUpNobody) {
  begin({.idle_time = 2s});
  server->set_answer(std::string(8 << 20, 'x'));
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 7; ++i) {
    peers.push_back(std::make_unique<RawPeer>(path));
    peers.back()->send(raw_begin() + raw_call(1) + raw_call(3));
  }
  EXPECT_EQ(ask()->size(), 8u << 20);
  for (const auto& each : peers)
    EXPECT_TRUE(becomes_true([&] { return each->is_closed_by_server(); }));
}

TEST_F(UnaryServerTest, AnotherProtocolIsClosed) {
  begin();
  server->set_answer("here");
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100, '\0'),
        raw_begin() + raw_frame(1, 4, 1, "\xff\xff\xff\xff\xff"),
        raw_begin() + raw_frame(0, 0, 7, "data of no stream"),
        raw_begin() + raw_frame(9, 4, 1, "a continuation of nothing")}) {
    const RawPeer peer(path);
    peer.send(bytes);
    EXPECT_TRUE(becomes_true([&] { return peer.is_closed_by_server(); })) << bytes;
  }
  EXPECT_EQ(*ask(), "here");
}

RC_GTEST_FIXTURE_PROP(UnaryServerTest, NoiseHarmsNobody, ()) {
  if (!can_call()) return;
  begin();
  server->set_answer("here");
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = *rc::gen::inRange(1, 8); i > 0; --i) {
    std::string bytes = raw_begin();
    for (int frames = *rc::gen::inRange(0, 6); frames > 0; --frames)
      bytes += *rc::gen::element(
          raw_call(1), raw_call(3), raw_frame(6, 0, 0, "12345678"),
          raw_frame(3, 0, 1, std::string("\0\0\0\1", 4)),
          raw_frame(*rc::gen::inRange<char>(0, 12), *rc::gen::arbitrary<char>(),
                    *rc::gen::inRange<char>(0, 5), *rc::gen::arbitrary<std::string>()));
    peers.push_back(std::make_unique<RawPeer>(path));
    peers.back()->send(bytes);
  }
  RC_ASSERT(*ask() == "here");
  server.reset();
}

// The thread ends whatever callers do.
TEST_F(UnaryServerTest, EndsWithCallers) {
  begin();
  server->set_answer(std::string(8 << 20, 'x'));
  const RawPeer silent(path), deaf(path);
  deaf.send(raw_begin() + raw_call(1));
  EXPECT_FALSE(deaf.read_until("xxxx").empty());
  server.reset();
  EXPECT_TRUE(silent.is_closed_by_server());
  EXPECT_FALSE(ask().ok());
}

}  // namespace
}  // namespace derate
