#include "service/transport/client_connection.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"

namespace derate {
namespace {

constexpr std::size_t kLongest = 64;

// A connection and its caller.
struct Pair {
  UniqueFd caller;
  ClientConnection client;
  SocketCloser closer;
  FakeClock clock;

  Pair() {
    std::array<int, 2> ends{};
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0);
    caller = UniqueFd(ends[0]);
    client.socket = UniqueFd(ends[1]);
  }
  void say(std::string_view text) const {
    CHECK(::send(caller.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(text.size()));
  }
  std::string hear() const {
    std::string out(1 << 20, '\0');
    const ssize_t n = ::recv(caller.get(), out.data(), out.size(), 0);
    out.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return out;
  }
  std::optional<std::string_view> next() {
    client.ready = true;
    return client.next_request(kLongest, closer, clock);
  }
};

// However the stream is cut, the lines come one by one, and each is answered before the next.
RC_GTEST_PROP(ClientConnection, LinesComeAsTheyWereSaid, ()) {
  Pair pair;
  const auto lines = *rc::gen::container<std::vector<std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange('a', 'z')));
  std::string rest, wanted;
  std::vector<std::string> heard, said;
  for (const std::string& line : lines) {
    said.push_back(line.substr(0, kLongest));
    rest += said.back() + "\n";
    wanted += "to " + said.back() + "\n";
  }
  while (!rest.empty()) {
    const auto part = *rc::gen::inRange<std::size_t>(1, rest.size() + 1);
    pair.say(std::string_view(rest).substr(0, part));
    rest.erase(0, part);
    while (const auto request = pair.next()) {
      heard.emplace_back(*request);
      pair.client.reply("to " + heard.back());
    }
  }
  RC_ASSERT(heard == said);
  RC_ASSERT(pair.hear() == wanted);
}

TEST(ClientConnection, NothingOvertakesAnAnswerThatComesLater) {
  Pair pair;
  pair.say("a\nb\n");
  ASSERT_EQ(pair.next(), "a");
  pair.client.reply(std::nullopt);
  EXPECT_FALSE(pair.next());
  pair.client.reply_late("now");
  EXPECT_EQ(pair.hear(), "now\n");
  EXPECT_EQ(pair.next(), "b");
}

TEST(ClientConnection, WhoDoesNotReadIsNotHeard) {
  Pair pair;
  pair.say("a\nb\n");
  ASSERT_EQ(pair.next(), "a");
  const std::string much(4 << 20, 'x');
  pair.client.reply(much);
  std::size_t got = 0;
  for (int i = 0; i < 100 && !pair.next(); ++i) got += pair.hear().size();
  EXPECT_EQ(got + pair.hear().size(), much.size() + 1);
}

TEST(ClientConnection, ALineThatIsTooLongIsRefusedAndEndsIt) {
  Pair pair;
  pair.say(std::string(kLongest + 1, 'x'));
  EXPECT_FALSE(pair.next());
  EXPECT_TRUE(pair.client.broken);
  EXPECT_NE(pair.hear().find("more than 64 bytes"), std::string::npos);
}

TEST(ClientConnection, TheLastWordsAreHeard) {
  Pair pair;
  pair.say("bye\n");
  pair.caller = UniqueFd();
  ASSERT_EQ(pair.next(), "bye");
  EXPECT_FALSE(pair.client.has_said_all());
  pair.client.reply("well");
  EXPECT_FALSE(pair.next());
  EXPECT_TRUE(pair.client.broken || pair.client.has_said_all());
}

}  // namespace
}  // namespace derate
