#include "fakenvml/sim_server.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "fakenvml/test_served.h"

namespace derate::fakenvml {
namespace {

using namespace std::chrono_literals;

std::vector<const SimChip*> one_chip() { return {&sim_chips().front()}; }

UniqueFd raw_connection(const std::string& directory) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = socket_path(directory);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET, 0));
  CHECK(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

TEST(SimServer, PacketsOfAnotherSizeEndTheConnectionAndNothingElse) {
  const Served served(one_chip());
  for (const std::size_t size :
       {std::size_t{1}, sizeof(Request) - 1, sizeof(Request) + 1, std::size_t{4096}}) {
    const UniqueFd fd = raw_connection(served.directory());
    const std::vector<char> packet(size, 'x');
    ASSERT_EQ(::send(fd.get(), packet.data(), size, 0), static_cast<ssize_t>(size));
    char byte;
    EXPECT_EQ(::recv(fd.get(), &byte, 1, 0), 0) << size;
  }
  EXPECT_EQ(served.ask({}).code, 0u);
}

TEST(SimServer, ARequestOfAnotherVersionIsAnswered) {
  const Served served(one_chip());
  Request request;
  request.version = 7;
  EXPECT_NE(served.ask(request).code, 0u);
  EXPECT_EQ(served.ask({}).code, 0u);
}

TEST(SimServer, ASecondServerNamesTheFirst) {
  Served served(one_chip());
  ServerOptions options;
  options.directory = served.directory();
  options.chips = one_chip();
  const auto second = SimServer::create(options, served.clock());
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("process " + std::to_string(::getpid())),
            std::string::npos);
  EXPECT_EQ(served.ask({}).code, 0u);
}

TEST(SimServer, ItTakesItsFilesAwayAndTellsItsClients) {
  Served served(one_chip());
  EXPECT_TRUE(served.client().alive());
  served.stop();
  EXPECT_FALSE(served.client().alive());
  EXPECT_TRUE(std::filesystem::is_empty(served.directory()));
  EXPECT_FALSE(SimClient::connect(served.directory()).ok());
}

TEST(SimServer, AJobEndsWithItsConnection) {
  Served served(one_chip());
  {
    auto other = SimClient::connect(served.directory());
    ASSERT_TRUE(other.ok());
    Request request;
    request.op = Op::start_job;
    request.gpu = 0;
    ASSERT_EQ((*other)->ask(request)->code, 0u);
    served.pass(1s);
    EXPECT_EQ(served.client().state().gpu[0].processes.read()->count, 1u);
  }
  // The reply to a later request comes after the server saw the hang-up.
  for (int i = 0; i < 3; ++i) (void)served.ask({});
  served.pass(1s);
  EXPECT_EQ(served.client().state().gpu[0].processes.read()->count, 0u);
}

}  // namespace
}  // namespace derate::fakenvml
