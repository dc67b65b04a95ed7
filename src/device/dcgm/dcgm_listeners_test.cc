#include "device/dcgm/dcgm_listeners.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "base/test_folder.h"

namespace derate {
namespace {

// Rows as the kernel writes them: number, local, remote, state, queues, timer, retransmits, user.
std::string row(const std::string& local, const std::string& state, int user) {
  return "   1: " + local + " 00000000:0000 " + state +
         " 00000000:00000000 00:00000000 00000000  " + std::to_string(user) +
         "        0 36842 1 0000000000000000 100 0 0 10 0\n";
}

struct Tables {
  void write(const std::string& name, const std::string& rows) {
    std::ofstream(folder.path() + "/" + name) << "  sl  local_address rem_address   st ...\n"
                                              << rows;
  }
  Folder folder;
};

TEST(DcgmListeners, ListenersAreThoseAtWhichAConnectionArrives) {
  const DcgmAddress address{.host = "127.0.0.1", .port = 5555, .path = {}};
  Tables tables;
  EXPECT_TRUE(listeners_of(address, tables.folder.path()).empty());
  tables.write("tcp", row("0100007F:15B3", "01", 7) + row("0100007F:15B4", "0A", 8) +
                          row("0200007F:15B3", "0A", 9) + "garbage\n");
  EXPECT_TRUE(listeners_of(address, tables.folder.path()).empty());
  tables.write("tcp", row("0100007F:15B3", "0A", 0));
  EXPECT_EQ(listeners_of(address, tables.folder.path()), std::vector<uid_t>{0});
  tables.write("tcp6", row("00000000000000000000000000000000:15B3", "0A", 1000));
  EXPECT_EQ(listeners_of(address, tables.folder.path()), (std::vector<uid_t>{0, 1000}));
}

TEST(DcgmListeners, TheOwnerOfASocketListensAndAFileIsNone) {
  Folder folder;
  const DcgmAddress address{.host = {}, .port = 0, .path = folder.path() + "/engine"};
  EXPECT_TRUE(listeners_of(address).empty());
  std::ofstream(address.path) << "x";
  EXPECT_TRUE(listeners_of(address).empty());
  ::unlink(address.path.c_str());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  EXPECT_EQ(listeners_of(address), std::vector<uid_t>{::geteuid()});
  ::close(fd);
}

// Any user may listen where no engine does: what that user says of GPUs is not used.
TEST(DcgmListeners, OfOtherUsersNothingIsUsed) {
  const DcgmAddress address = usual_dcgm_addresses().front();
  const auto code = [&](const std::vector<uid_t>& users) {
    const auto checked = check_listeners(address, users, 1000);
    return checked.ok() ? std::optional<Errc>{} : checked.error().code;
  };
  EXPECT_EQ(code({}), Errc::not_found);
  EXPECT_EQ(code({0}), std::nullopt);
  EXPECT_EQ(code({1000, 0}), std::nullopt);
  EXPECT_EQ(code({0, 1001}), Errc::no_permission);
}

}  // namespace
}  // namespace derate
