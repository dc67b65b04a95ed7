#include "service/control_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/check.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

class ControlTest : public testing::Test {
 protected:
  static std::string new_folder() {
    std::string made = (std::filesystem::temp_directory_path() / "derate-XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    return made;
  }
  ~ControlTest() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }
  void listen() {
    server_ = *ControlServer::create(path_, clock_);
    thread_ = std::thread([this] {
      while (!stop_) {
        server_->serve([](std::string_view request, const Peer& peer) {
          return "heard " + std::string(request) + " of " + std::to_string(peer.pid);
        });
        clock_.sleep_until(clock_.now() + 2ms);
      }
    });
  }
  UniqueFd raw() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    CHECK(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return socket;
  }

  std::string folder_ = new_folder();
  std::string path_ = folder_ + "/control.sock";
  SystemClock clock_;
  std::unique_ptr<ControlServer> server_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

TEST_F(ControlTest, AnswersALineWithALineAndKnowsTheCaller) {
  listen();
  EXPECT_EQ(*control_call(path_, "{\"a\":1}", 10s),
            "heard {\"a\":1} of " + std::to_string(::getpid()));
}

TEST_F(ControlTest, NobodyThereIsNotFound) {
  EXPECT_EQ(control_call(path_, "x", 1s).error().code, Errc::not_found);
  server_ = *ControlServer::create(path_, clock_);
  EXPECT_EQ(control_call(path_, "x", 20ms).error().code, Errc::gpu_stuck);
}

TEST_F(ControlTest, TheSecondServerIsRefusedAndADeadOnesSocketReplaced) {
  listen();
  EXPECT_EQ(ControlServer::create(path_, clock_).error().code, Errc::busy);
  const UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string other = folder_ + "/dead.sock";
  std::copy(other.begin(), other.end(), address.sun_path);
  ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_TRUE(ControlServer::create(other, clock_).ok());
}

TEST_F(ControlTest, OnlyItsUserMayConnect) {
  listen();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

// A caller that sends rubbish, nothing, or without end, costs the others nothing.
TEST_F(ControlTest, BadCallersDoNotDisturbTheOthers) {
  listen();
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 20; ++i) silent.push_back(raw());
  const UniqueFd endless = raw();
  const std::string much(ControlServer::kLongestRequest + 4096, 'x');
  (void)::send(endless.get(), much.data(), much.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  EXPECT_TRUE(control_call(path_, std::string("\0\xff", 2), 10s).ok());
}

TEST(ControlSocket, ATooLongNameIsRefused) {
  SystemClock clock;
  EXPECT_EQ(ControlServer::create("/tmp/" + std::string(200, 'x'), clock).error().code,
            Errc::invalid_argument);
}

}  // namespace
}  // namespace derate
