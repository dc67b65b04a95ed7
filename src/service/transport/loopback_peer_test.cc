#include "service/transport/loopback_peer.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"
#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

UniqueFd tcp(int family) { return UniqueFd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

// A listener on the loopback, and connections to it.
class Loopback {
 public:
  explicit Loopback(int family) : family_(family), listener_(tcp(family)) {
    if (!listener_.valid()) return;
    sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    sockaddr_in v4{.sin_family = AF_INET};
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool bound =
        family == AF_INET6
            ? ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0
            : ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0;
    if (!bound || ::listen(listener_.get(), 8) != 0) return;
    sockaddr_storage found{};
    socklen_t size = sizeof found;
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&found), &size) == 0);
    port_ = family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(found).sin6_port
                               : reinterpret_cast<sockaddr_in&>(found).sin_port;
  }
  bool is_there() const { return port_ != 0; }
  // Connects with a socket of `family`: from IPv6 to an IPv4 listener by its mapped address.
  UniqueFd connect(int family) const {
    UniqueFd out = tcp(family);
    sockaddr_in v4{.sin_family = AF_INET, .sin_port = port_};
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 v6{.sin6_family = AF_INET6, .sin6_port = port_, .sin6_addr = in6addr_loopback};
    if (family_ == AF_INET) {
      const std::uint8_t mapped[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1};
      std::copy(std::begin(mapped), std::end(mapped), v6.sin6_addr.s6_addr);
    }
    CHECK((family == AF_INET6
               ? ::connect(out.get(), reinterpret_cast<sockaddr*>(&v6), sizeof v6)
               : ::connect(out.get(), reinterpret_cast<sockaddr*>(&v4), sizeof v4)) == 0);
    return out;
  }
  UniqueFd accept() const {
    return UniqueFd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  int family_;
  UniqueFd listener_;
  in_port_t port_ = 0;
};

class LoopbackPeer : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(LoopbackPeer, IsTheUserWhoConnected) {
  const auto [listens, connects] = GetParam();
  const Loopback loopback(listens);
  if (!loopback.is_there() || !tcp(connects).valid()) GTEST_SKIP() << "no such address here";
  const UniqueFd caller = loopback.connect(connects);
  const UniqueFd taken = loopback.accept();
  EXPECT_EQ(user_of_peer(taken), ::geteuid());
  EXPECT_EQ(user_of_peer(caller), ::geteuid());
  EXPECT_EQ(user_in_tables(taken), ::geteuid());
  EXPECT_EQ(user_in_tables(caller), ::geteuid());
}

// The table names root as the user of a closed socket's remains.
TEST_P(LoopbackPeer, IsNobodyOnceItsSocketIsClosed) {
  const auto [listens, connects] = GetParam();
  const Loopback loopback(listens);
  if (!loopback.is_there() || !tcp(connects).valid()) GTEST_SKIP() << "no such address here";
  UniqueFd caller = loopback.connect(connects);
  const UniqueFd taken = loopback.accept();
  caller = UniqueFd();
  EXPECT_EQ(user_of_peer(taken), std::nullopt);
  EXPECT_EQ(user_in_tables(taken), std::nullopt);
}

// A caller that has shut down its sending side may still read.
TEST_P(LoopbackPeer, IsStillTheUserWhoHasSentAll) {
  const auto [listens, connects] = GetParam();
  const Loopback loopback(listens);
  if (!loopback.is_there() || !tcp(connects).valid()) GTEST_SKIP() << "no such address here";
  const UniqueFd caller = loopback.connect(connects);
  const UniqueFd taken = loopback.accept();
  ::shutdown(caller.get(), SHUT_WR);
  EXPECT_EQ(user_of_peer(taken), ::geteuid());
  EXPECT_EQ(user_in_tables(taken), ::geteuid());
}

INSTANTIATE_TEST_SUITE_P(Families, LoopbackPeer,
                         testing::Values(std::pair(AF_INET, AF_INET), std::pair(AF_INET6, AF_INET6),
                                         std::pair(AF_INET, AF_INET6)));

TEST(LoopbackPeerTable, HasTheUserOfAnother) {
  const Loopback loopback(AF_INET);
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kOther = 65533;
  int told[2];
  ASSERT_EQ(::pipe(told), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::setuid(kOther) != 0) ::_exit(1);
    const UniqueFd caller = loopback.connect(AF_INET);
    char end = 0;
    (void)!::read(told[0], &end, 1);
    ::_exit(0);
  }
  const UniqueFd taken = loopback.accept();
  EXPECT_EQ(user_of_peer(taken), kOther);
  EXPECT_EQ(user_in_tables(taken), kOther);
  EXPECT_EQ(::write(told[1], "x", 1), 1);
}

TEST(LoopbackPeerTable, OfWhatIsNoRowNobodyIsFound) {
  const Loopback loopback(AF_INET);
  const UniqueFd caller = loopback.connect(AF_INET);
  const UniqueFd taken = loopback.accept();
  const Folder folder;
  const TcpTables none{folder.file("no"), folder.file("no")};
  EXPECT_EQ(user_in_tables(taken, none), std::nullopt);
  EXPECT_EQ(user_of_peer(UniqueFd()), std::nullopt);
  const TcpTables real;
  std::string text = *read_file(real.v4);
  for (const std::string& cut :
       {text.substr(0, text.size() / 2 - 20), std::string("0: \n : 1\n")}) {
    ASSERT_TRUE(write_file_atomically(folder.file("cut"), cut, Durable::no).ok());
    (void)user_in_tables(taken, {folder.file("cut"), folder.file("cut")});
  }
}

}  // namespace
}  // namespace derate
