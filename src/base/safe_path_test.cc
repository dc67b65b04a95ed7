#include "base/safe_path.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr uid_t kAttacker = 65533, kVictim = 65534;

mode_t mode_of(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

class SafePathTest : public testing::Test {
 protected:
  SafePathTest() { make("tmp", 01777); }

  static void open_up(const std::string& path, mode_t mode) { ::chmod(path.c_str(), mode); }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  std::string make(const std::string& name, mode_t mode) const {
    fs::create_directories(at(name));
    open_up(at(name), mode);
    return at(name);
  }
  void give(const std::string& name, uid_t user) const {
    ASSERT_EQ(::lchown(at(name).c_str(), user, user), 0);
  }
  // What a process of that user makes of it: the error's text, or "".
  static std::string as(uid_t user, const std::function<Result<void>()>& what) {
    return as_user(user, [&] {
      const auto done = what();
      return done.ok() ? "" : done.error().message;
    });
  }

  static std::string as_victim(const std::function<Result<void>()>& what) {
    return as(kVictim, what);
  }

  const Folder home_{0755};
  const std::string root_ = home_.path();
};

bool has(const std::string& text, std::string_view words) { return text.find(words) != text.npos; }

TEST_F(SafePathTest, AnotherUsersFolderAmongEverybodysIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  make("tmp/derate-1", 0755);
  give("tmp/derate-1", kAttacker);
  const std::string path = at("tmp/derate-1");
  const std::string who = "'" + path + "' belongs to user 65533";
  EXPECT_TRUE(has(as_victim([&] { return check_way(path); }), who));
  EXPECT_TRUE(has(as_victim([&] { return check_way(path + "/deep/file"); }), who));
  EXPECT_TRUE(has(as_victim([&] { return make_folders(path + "/journal"); }), who));
  EXPECT_TRUE(has(as_victim([&] { return make_own_folder(path, 077); }), who));
  EXPECT_FALSE(fs::exists(path + "/journal"));
  // Its owner may use it, and what root has put there is nobody's trick.
  EXPECT_EQ(as(kAttacker, [&] { return check_way(path); }), "");
  give("tmp/derate-1", 0);
  EXPECT_EQ(as_victim([&] { return check_way(path); }), "");
}

TEST_F(SafePathTest, AnotherUsersLinkIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  make("home", 0700);
  give("home", kVictim);
  fs::create_symlink(at("home"), at("tmp/derate-1"));
  give("tmp/derate-1", kAttacker);
  const std::string path = at("tmp/derate-1");
  EXPECT_TRUE(has(as_victim([&] { return check_way(path + "/x"); }), "belongs to user 65533"));
  EXPECT_TRUE(has(as_victim([&] { return make_folders(path); }), "belongs to user 65533"));
  give("tmp/derate-1", kVictim);
  EXPECT_EQ(as_victim([&] { return check_way(path + "/x"); }), "");
  EXPECT_TRUE(has(as_victim([&] { return make_own_folder(path, 077); }), "is a link or no folder"));
}

TEST_F(SafePathTest, AFolderInWhichEverybodyMayExchangeFilesIsRefused) {
  make("open", 0777);
  for (const char* name : {"open/x", "open/x/y"})
    EXPECT_TRUE(has(check_way(at(name)).error().message, "/open' (mode 0777)")) << name;
  EXPECT_FALSE(make_folders(at("open/x")).ok());
  EXPECT_FALSE(fs::exists(at("open/x")));
  open_up(at("open"), 01777);
  EXPECT_TRUE(make_folders(at("open/x/y")).ok());
  EXPECT_TRUE(fs::exists(at("open/x/y")));
}

TEST_F(SafePathTest, AnOwnFolderIsMadePrivateAndStaysIt) {
  const std::string path = at("tmp/mine");
  ASSERT_TRUE(make_own_folder(path, 077).ok());
  EXPECT_EQ(mode_of(path), 0700u);
  for (const mode_t mode : {0700, 0755, 0770, 0701, 0777, 0500}) {
    open_up(path, mode);
    const auto made = make_own_folder(path, 077);
    EXPECT_EQ(made.ok(), (mode & 077) == 0) << mode;
    const std::string told = made.ok() ? "" : made.error().message;
    EXPECT_EQ(has(told, path + "' is open to others (mode 0"), !made.ok());
    EXPECT_EQ(make_own_folder(path, 002).ok(), (mode & 002) == 0) << mode;
    EXPECT_EQ(mode_of(path), mode);
  }
}

TEST_F(SafePathTest, WhatIsNoFolderIsNotTakenForOne) {
  ASSERT_TRUE(write_file_atomically(at("file"), "x").ok());
  const auto made = make_own_folder(at("file"), 077);
  EXPECT_EQ(made.error().code, Errc::no_permission);
  EXPECT_TRUE(has(made.error().message, "/file' is a link or no folder"));
  EXPECT_TRUE(has(make_own_folder(at("no/folder"), 077).error().message, "cannot create"));
}

class SocketFile {
 public:
  explicit SocketFile(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    bound = ::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool bound = false;

 private:
  UniqueFd fd_;
};

TEST_F(SafePathTest, ASocketOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  const std::string path = at("tmp/beat.sock");
  EXPECT_EQ(as_victim([&] { return check_socket_file(path); }), "");  // nobody is told nothing
  const SocketFile socket(path);
  ASSERT_TRUE(socket.bound);
  EXPECT_EQ(as_victim([&] { return check_socket_file(path); }), "");  // root's
  give("tmp/beat.sock", kVictim);
  EXPECT_EQ(as_victim([&] { return check_socket_file(path); }), "");
  give("tmp/beat.sock", kAttacker);
  EXPECT_TRUE(
      has(as_victim([&] { return check_socket_file(path); }), "/beat.sock' belongs to user 65533"));
  fs::create_symlink(path, at("link.sock"));
  EXPECT_TRUE(has(as_victim([&] { return check_socket_file(at("link.sock")); }), "is a link"));
}

TEST_F(SafePathTest, ASocketInAFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "gives files away, which root may";
  make("run", 0755);
  const std::string path = at("run/beat.sock");
  const SocketFile socket(path);
  ASSERT_TRUE(socket.bound);
  EXPECT_EQ(as_victim([&] { return check_socket_file(path); }), "");
  give("run", kAttacker);  // who may put a socket of the victim's there, and another one later
  EXPECT_TRUE(has(as_victim([&] { return check_socket_file(path); }), "/run' belongs to user 655"));
  give("run", 0);
  open_up(at("run"), 0777);
  EXPECT_TRUE(has(as_victim([&] { return check_socket_file(path); }), "/run' (mode 0777)"));
}

TEST_F(SafePathTest, ATemporaryFileIsAlwaysANewOne) {
  const std::string path = at("state.json");
  ASSERT_TRUE(write_file_atomically(at("victim"), "mine").ok());
  // What was foreseen before.
  fs::create_symlink(at("victim"), path + "." + std::to_string(::getpid()) + ".tmp");
  fs::create_symlink(at("victim"), path);
  ASSERT_TRUE(write_file_atomically(path, "new").ok());
  EXPECT_EQ(*read_file(at("victim")), "mine");
  EXPECT_EQ(*read_file(path), "new");
  EXPECT_FALSE(fs::is_symlink(path));
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(root_))
    files += !entry.is_symlink() && entry.is_regular_file() ? 1 : 0;
  EXPECT_EQ(files, 2u);  // nothing is left behind
}

TEST(WriterOf, KnowsTemporaryFilesAndNoOthers) {
  EXPECT_EQ(writer_of("state.json.123-00ff00ff00ff00ff.tmp"), 123);
  EXPECT_EQ(writer_of("GPU-2.json.77.tmp"), 77);  // of an earlier version
  for (const char* other : {"", ".tmp", "x.tmp", "state.json", "GPU-2.json.tmp", "a.-5.tmp",
                            "a.0-1.tmp", "a.99999999999-1.tmp", "a.12x-1.tmp", "a.12-1.tmp.bak"})
    EXPECT_EQ(writer_of(other), std::nullopt) << other;
}

}  // namespace
}  // namespace derate
