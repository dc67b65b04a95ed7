#include "integ/kube/kubelet.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>

#include "base/test_folder.h"
#include "integ/kube/unary_call.h"

namespace derate {
namespace {

using Pods = std::optional<std::vector<PodDevice>>;

// --- What is remembered --------------------------------------------------------------------------

std::vector<PodDevice> of_pod(int n) {
  return {{{"lab", fmt::format("pod-{}", n)}, "main", "nvidia.com/gpu", "GPU-1"}};
}

// Whatever the kubelet does, the devices are those of its last answer, for as long as that counts.
RC_GTEST_PROP(PodMemoryProp, TheLastAnswerCountsForItsTime, ()) {
  PodMemory memory;
  Instant now{};
  std::optional<std::pair<Instant, std::vector<PodDevice>>> last;
  std::string before;
  const int steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    now += std::chrono::seconds(*rc::gen::inRange(1, 200));
    const int what = *rc::gen::inRange(0, 4);
    std::string text;
    if (what == 0) {
      last = {now, of_pod(i)};
      text = memory.learn(Pods(of_pod(i)), now);
    } else if (what == 1) {
      text = memory.learn(Pods(), now);
    } else {
      text = memory.learn(Error{Errc::io, "away"}, now);
    }
    const bool counts = last && now - last->first <= PodMemory::kKeep;
    RC_ASSERT(memory.devices() == (counts ? last->second : std::vector<PodDevice>()));
    RC_ASSERT((text.empty() || text != before));  // nothing is told twice running
    if (!text.empty()) before = text;
  }
}

TEST(PodMemory, OutsideKubernetesThatIsToldOnceAndIsNoFailure) {
  PodMemory memory;
  EXPECT_EQ(memory.learn(Pods(), {}), "kubelet: none here; pods are not named");
  EXPECT_EQ(memory.learn(Pods(), {}), "");
  EXPECT_EQ(memory.learn(Pods(of_pod(1)), {}), "kubelet: answers; devices of 1 pods");
  EXPECT_EQ(memory.learn(Pods(of_pod(2)), {}), "");
  EXPECT_EQ(memory.learn(Pods(), {}), "kubelet: its socket is gone; pods are as it told last");
}

// --- Sockets -------------------------------------------------------------------------------------

std::string socket_in(const Folder& folder) { return folder.file("kubelet.sock"); }

KubeletOptions at(const Folder& folder, Duration timeout = std::chrono::seconds(20)) {
  KubeletOptions out;
  out.socket = socket_in(folder);
  out.timeout = timeout;
  return out;
}

struct Kubelet : testing::Test {
  void SetUp() override {
    if (!can_call()) GTEST_SKIP() << "built without libnghttp2";
  }
  Folder folder;
  SystemClock clock;

  Result<Pods> ask(Duration timeout = std::chrono::seconds(20)) {
    return list_pods(at(folder, timeout), clock);
  }
  Errc wrong(Duration timeout = std::chrono::seconds(20)) {
    const auto answer = ask(timeout);
    EXPECT_FALSE(answer.ok());
    return answer.ok() ? Errc::interrupted : answer.error().code;
  }
};

UniqueFd listen_at(const Folder& folder) {
  UniqueFd out(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_in(folder).c_str(), sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(out.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(out.get(), 4), 0);
  return out;
}

// Sends `bytes` to the first that connects, then `endless` over and over, and ends.
std::thread serve(int listener, std::string bytes, std::string endless = "") {
  return std::thread([listener, bytes = std::move(bytes), endless = std::move(endless)] {
    const UniqueFd peer(::accept(listener, nullptr, nullptr));
    const auto send = [&](const std::string& text) {
      return ::send(peer.get(), text.data(), text.size(), MSG_NOSIGNAL) > 0;
    };
    send(bytes);
    while (!endless.empty() && send(endless)) {
    }
    // Ended by the reader, or here: what it wrote is taken, so that nothing resets the connection.
    ::shutdown(peer.get(), SHUT_WR);
    std::array<char, 4096> taken{};
    while (::read(peer.get(), taken.data(), taken.size()) > 0) {
    }
  });
}

// A frame of HTTP/2: its size, type, flags and stream, and what is in it (RFC 9113, 4.1).
std::string frame(char type, char flags, char stream, const std::string& body) {
  std::string out = {0,
                     static_cast<char>(body.size() >> 8),
                     static_cast<char>(body.size() & 0xff),
                     type,
                     flags,
                     0,
                     0,
                     0,
                     stream};
  return out += body;
}
const std::string kSettings = frame(4, 0, 0, "");

// An answer by hand: HEADERS with status 200 (HPACK's entry 8), DATA, HEADERS with grpc-status 0.
std::string answered(const std::string& data) {
  return kSettings + frame(1, 4, 1, "\x88") + frame(0, 0, 1, data) +
         frame(1, 5, 1,
               std::string("\0\x0bgrpc-status\1"
                           "0",
                           15));
}

TEST_F(Kubelet, WithoutSocketThereIsNone) {
  const auto answer = ask();
  ASSERT_TRUE(answer.ok());
  EXPECT_FALSE(answer->has_value());
}

TEST_F(Kubelet, ASocketThatNobodyListensAtIsAFailure) {
  { const UniqueFd gone = listen_at(folder); }
  EXPECT_EQ(wrong(), Errc::io);
}

TEST_F(Kubelet, ALongerPathThanSocketsHaveIsRefused) {
  KubeletOptions options;
  options.socket = "/" + std::string(120, 'x');
  const auto answer = list_pods(options, clock);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Errc::invalid_argument);
}

TEST_F(Kubelet, OneThatSaysNothingIsGivenUp) {
  const UniqueFd silent = listen_at(folder);
  EXPECT_EQ(wrong(std::chrono::milliseconds(30)), Errc::query_failed);
}

TEST_F(Kubelet, ACallEndsWhenItIsToldTo) {
  const UniqueFd silent = listen_at(folder);
  const UniqueFd stop(::eventfd(1, EFD_CLOEXEC));
  KubeletOptions options = at(folder, std::chrono::hours(1));
  options.stop_fd = stop.get();
  const auto answer = list_pods(options, clock);
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Errc::interrupted);
}

struct ByHand {
  const char* what;
  std::string data;
  bool good;
};

TEST_F(Kubelet, AnAnswerIsOneWholeMessage) {
  const auto bytes = [](std::initializer_list<char> all) { return std::string(all); };
  const std::array cases = {
      ByHand{"no pods", bytes({0, 0, 0, 0, 0}), true},
      ByHand{"one without fields", bytes({0, 0, 0, 0, 2, 0x0a, 0}), true},
      ByHand{"shorter than told", bytes({0, 0, 0, 0, 3, 0x0a, 0}), false},
      ByHand{"longer than told", bytes({0, 0, 0, 0, 0, 0x0a, 0}), false},
      ByHand{"compressed", bytes({1, 0, 0, 0, 2, 0x0a, 0}), false},
      ByHand{"cut off in its size", bytes({0, 0, 0}), false},
      ByHand{"none", "", false},
  };
  for (const ByHand& one : cases) {
    const Folder place;
    const UniqueFd listener = listen_at(place);
    std::thread server = serve(listener.get(), answered(one.data));
    const auto answer = list_pods(at(place), clock);
    server.join();
    EXPECT_EQ(answer.ok(), one.good) << one.what;
    EXPECT_TRUE(answer.ok() || answer.error().code == Errc::bad_data) << one.what;
  }
}

// HTTP/2 to its first frames, or not at all.
RC_GTEST_FIXTURE_PROP(Kubelet, AnyBytesAreRefused, ()) {
  if (!can_call()) return;  // rapidcheck runs what its fixture skips
  std::string bytes = *rc::gen::arbitrary<bool>() ? kSettings : "";
  const int frames = *rc::gen::inRange(0, 5);
  for (int i = 0; i < frames; ++i)
    bytes += frame(static_cast<char>(*rc::gen::inRange(0, 11)),
                   static_cast<char>(*rc::gen::inRange(0, 64)),
                   static_cast<char>(*rc::gen::inRange(0, 2)), *rc::gen::arbitrary<std::string>());
  const UniqueFd listener = listen_at(folder);
  std::thread server = serve(listener.get(), bytes);
  const auto answer = ask();
  server.join();
  RC_ASSERT(!answer.ok());
  RC_ASSERT((answer.error().code == Errc::bad_data || answer.error().code == Errc::io ||
             answer.error().code == Errc::query_failed));
}

TEST_F(Kubelet, FramesWithoutEndAreGivenUp) {
  const UniqueFd listener = listen_at(folder);
  const std::string unknown = frame('\xee', 0, 0, std::string(16000, 'x'));  // to be passed over
  std::thread server = serve(listener.get(), kSettings, unknown);
  const auto answer = ask();
  server.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message,
            "/v1.PodResourcesLister/List: an answer of more than 16777216 bytes");
}

// --- gRPC's own server ---------------------------------------------------------------------------

#ifdef DERATE_FAKE_KUBELET

// tests/kube/fake_kubelet as a process of its own; it ends with this.
class Fake {
 public:
  Fake(const Folder& folder, const std::string& mode, int pods = 0) {
    std::array<int, 2> in{}, out{};
    EXPECT_EQ(::pipe2(in.data(), O_CLOEXEC) | ::pipe2(out.data(), O_CLOEXEC), 0);
    input_ = UniqueFd(in[1]);
    const UniqueFd its_input(in[0]), output(out[0]);
    UniqueFd its_output(out[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, its_input.get(), STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, its_output.get(), STDOUT_FILENO);
    std::string program = DERATE_FAKE_KUBELET, socket = socket_in(folder), how = mode,
                number = std::to_string(pods);
    std::array<char*, 5> words = {program.data(), socket.data(), how.data(), number.data(),
                                  nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, program.c_str(), &actions, nullptr, words.data(), environ), 0);
    ::posix_spawn_file_actions_destroy(&actions);
    its_output = UniqueFd();
    std::array<char, 16> ready{};
    EXPECT_GT(::read(output.get(), ready.data(), ready.size()), 0) << "it did not start";
  }
  ~Fake() {
    input_ = UniqueFd();
    ::waitpid(pid_, nullptr, 0);
  }
  void kill() { ::kill(pid_, SIGKILL); }

 private:
  UniqueFd input_;
  pid_t pid_ = 0;
};

TEST_F(Kubelet, AnswersAreRead) {
  const Fake fake(folder, "answer", 3);
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  ASSERT_TRUE(answer->has_value());
  ASSERT_EQ((*answer)->size(), 3U);
  EXPECT_EQ((**answer)[2], (PodDevice{{"lab", "pod-2"}, "main", "nvidia.com/gpu", "GPU-2"}));
}

TEST_F(Kubelet, NoPodsAreAnAnswer) {
  const Fake fake(folder, "answer", 0);
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, Pods(std::vector<PodDevice>()));
}

// More than HTTP/2's first window of 64 KiB, so that it has to be opened again and again.
TEST_F(Kubelet, ALongAnswerIsRead) {
  const Fake fake(folder, "answer", 50'000);
  const auto answer = ask();
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ((*answer)->size(), 50'000U);
}

TEST_F(Kubelet, ATooLongOneIsRefused) {
  const Fake fake(folder, "long", 65'000);  // 19 MB
  const auto answer = ask();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message,
            "/v1.PodResourcesLister/List: an answer of more than 16777216 bytes");
}

TEST_F(Kubelet, ARefusalSaysWhatItWas) {
  const Fake fake(folder, "error");
  const auto answer = ask();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, Errc::query_failed);
  EXPECT_EQ(answer.error().message,
            "/v1.PodResourcesLister/List: gRPC status '8' rejected by rate limit: wait");
}

TEST_F(Kubelet, ACallThatHangsIsGivenUp) {
  const Fake fake(folder, "hang");
  EXPECT_EQ(wrong(std::chrono::milliseconds(300)), Errc::query_failed);
}

// A kubelet restarts: what it told counts meanwhile, and what it tells then counts from then on.
TEST_F(Kubelet, TheWatchGoesOnAcrossARestart) {
  std::mutex mutex;
  std::vector<std::string> logged;
  const auto wait_until = [&](const auto& holds) {
    for (int i = 0; i < 2000 && !holds(); ++i)
      clock.sleep_until(clock.now() + std::chrono::milliseconds(10));
    return holds();
  };
  const auto heard = [&](std::size_t n) {
    return wait_until([&] {
      const std::lock_guard lock(mutex);
      return logged.size() >= n;
    });
  };
  auto fake = std::make_unique<Fake>(folder, "answer", 2);
  PodWatch watch(at(folder), std::chrono::milliseconds(5), clock, Log([&](const LogRecord& record) {
                   const std::lock_guard lock(mutex);
                   logged.push_back(record.text);
                 }));
  EXPECT_TRUE(wait_until([&] { return watch.devices().size() == 2; }));
  fake->kill();
  fake.reset();
  EXPECT_TRUE(heard(2));
  EXPECT_EQ(watch.devices().size(), 2U);
  fake = std::make_unique<Fake>(folder, "answer", 5);
  EXPECT_TRUE(wait_until([&] { return watch.devices().size() == 5; }));
  EXPECT_TRUE(heard(3));
  const std::lock_guard lock(mutex);
  EXPECT_EQ(logged[0], "kubelet: answers; devices of 2 pods");
  EXPECT_NE(logged[1].find("pods are as it told last"), std::string::npos) << logged[1];
  EXPECT_EQ(logged[2], "kubelet: answers; devices of 5 pods");
}

#endif

// What waits an hour for an answer or for the next asking ends at once with its owner.
TEST_F(Kubelet, TheWatchEndsWithItsOwner) {
  const PodWatch idle(at(folder), std::chrono::hours(1), clock, Log());
  const Folder other;
  const UniqueFd silent = listen_at(other);
  const PodWatch waiting(at(other, std::chrono::hours(1)), std::chrono::hours(1), clock, Log());
}

}  // namespace
}  // namespace derate
