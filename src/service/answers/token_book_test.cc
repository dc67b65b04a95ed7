#include "service/answers/token_book.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <set>
#include <thread>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "service/answers/token_service.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
constexpr Duration kWeek = std::chrono::hours(24 * 7);

struct Tokens {
  Folder folder;
  FakeClock clock;
  std::vector<std::string> lines;
  Log log{[this](const LogRecord& record) { lines.push_back(record.text); }};
  std::string file = folder.file("tokens.json");
  TokenBook book{file, clock, log};
};

TEST(TokenBook, WhoHasASecretHasItsRole) {
  Tokens t;
  const std::string reader = t.book.create("grafana", "reader", kWeek, "uid 0")->secret;
  const std::string op = t.book.create("ops.1", "operator", kWeek, "uid 0")->secret;
  EXPECT_EQ(reader.size(), TokenBook::kLength);
  EXPECT_EQ(t.book.check(reader)->role, Role::reader);
  EXPECT_EQ(t.book.check(op)->role, Role::operates);
  EXPECT_EQ(t.book.check(op)->name, "ops.1");
  EXPECT_EQ(t.book.wrong(), 0u);
  // Another process reads the same.
  const TokenBook other(t.file, t.clock, {});
  EXPECT_EQ(other.check(op)->role, Role::operates);
  EXPECT_TRUE(t.book.revoke("ops.1").ok());
  EXPECT_FALSE(t.book.check(op).ok());
  EXPECT_TRUE(t.book.check(reader).ok());
  EXPECT_EQ(t.book.revoke("ops.1").error().code, Errc::not_found);
  EXPECT_EQ(t.book.wrong(), 1u);
}

// Nothing but the secret itself: not one letter more, less or other.
RC_GTEST_PROP(TokenBook, NothingElseIsBelieved, ()) {
  Tokens t;
  const std::string secret = t.book.create("a", "user", kWeek, "uid 0")->secret;
  std::string other = secret;
  const auto at = *rc::gen::inRange<std::size_t>(0, secret.size());
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      other[at] = static_cast<char>(other[at] ^ *rc::gen::inRange(1, 256));
      break;
    case 1:
      other.resize(at);
      break;
    case 2:
      other += *rc::gen::element<std::string>("x", std::string(1, '\0'), secret);
      break;
    default:
      other = *rc::gen::arbitrary<std::string>();
  }
  RC_ASSERT(t.book.check(secret).ok());
  RC_ASSERT(!t.book.check(other).ok());
  RC_ASSERT(t.book.wrong() == 1u);
}

TEST(TokenBook, NoSecretIsLikeAnother) {
  Tokens t;
  std::set<std::string> secrets;
  std::set<char> letters;
  for (std::size_t i = 0; i < TokenBook::kMost; ++i) {
    const auto made = t.book.create("t" + std::to_string(i), "reader", kWeek, "uid 0");
    ASSERT_TRUE(made.ok());
    secrets.insert(made->secret);
    const std::string body = made->secret.substr(TokenBook::kPrefix.size());
    letters.insert(body.begin(), body.end());
    EXPECT_EQ(body.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789-_"),
              std::string::npos);
  }
  EXPECT_EQ(secrets.size(), TokenBook::kMost);
  // 11,000 letters of 64: that one is missing has a chance of 64 exp(-172).
  EXPECT_EQ(letters.size(), 64u);
  EXPECT_EQ(t.book.create("more", "reader", kWeek, "uid 0").error().code, Errc::busy);
}

TEST(TokenBook, EndsWithItsTime) {
  Tokens t;
  const std::string secret = t.book.create("a", "user", kWeek, "uid 0")->secret;
  t.clock.advance(kWeek - 1s);
  EXPECT_TRUE(t.book.check(secret).ok());
  EXPECT_FALSE(t.book.create("a", "user", kWeek, "uid 0").ok());
  t.clock.advance(1s);
  EXPECT_NE(t.book.check(secret).error().message.find("the token 'a' expired at"),
            std::string::npos);
  EXPECT_EQ(t.book.wrong(), 1u);
  EXPECT_TRUE(t.book.create("a", "reader", kWeek, "uid 0").ok());
  EXPECT_EQ(t.book.list()->size(), 1u);
}

TEST(TokenBook, IsNoAdmins) {
  Tokens t;
  for (const char* role : {"admin", "agent", "Reader", "", "operates"})
    EXPECT_EQ(t.book.create("a", role, kWeek, "uid 0").error().code, Errc::invalid_argument);
  for (const char* name : {"", "-a", ".a", "a b", "a\n", "../a"})
    EXPECT_EQ(t.book.create(name, "user", kWeek, "uid 0").error().code, Errc::invalid_argument);
  // Nor one that somebody wrote into the file.
  const std::string secret = std::string(TokenBook::kPrefix) + std::string(43, 'A');
  ASSERT_TRUE(write_tokens(t.file, {{"a", "admin", secret, "", {}, WallTime(kWeek)}}).ok());
  t.book.load();
  EXPECT_FALSE(t.book.check(secret).ok());
}

TEST(TokenBook, AFileThatIsRefusedGivesNobodyARole) {
  Tokens t;
  const std::string secret = t.book.create("a", "user", kWeek, "uid 0")->secret;
  ASSERT_EQ(::chmod(t.file.c_str(), 0644), 0);
  t.book.load();
  t.book.load();
  EXPECT_EQ(t.lines.size(), 1u);
  EXPECT_FALSE(t.book.check(secret).ok());
  for (const auto code : {t.book.create("b", "user", kWeek, "").error().code,
                          t.book.revoke("a").error().code, t.book.list().error().code})
    EXPECT_EQ(code, Errc::no_permission);
  ASSERT_EQ(::chmod(t.file.c_str(), 0600), 0);
  t.book.load();
  EXPECT_TRUE(t.book.check(secret).ok());
}

// What cannot be written has not been done.
TEST(TokenBook, IsAsItWasWhereItCannotBeWritten) {
  Tokens t;
  const std::string secret = t.book.create("a", "user", kWeek, "uid 0")->secret;
  TokenBook nowhere(t.folder.file("none") + "/tokens.json", t.clock, {});
  ASSERT_TRUE(write_file_atomically(t.folder.file("none"), "a file").ok());
  EXPECT_FALSE(nowhere.create("b", "user", kWeek, "uid 0").ok());
  EXPECT_TRUE(nowhere.list()->empty());
  EXPECT_EQ(TokenBook("", t.clock, {}).create("b", "user", kWeek, "").error().code,
            Errc::not_supported);
}

TEST(TokenBook, MayBeAskedWhileItChanges) {
  Tokens t;
  const std::string kept = t.book.create("kept", "user", kWeek, "uid 0")->secret;
  std::atomic<bool> stop = false;
  std::thread asking([&] {
    while (!stop) EXPECT_TRUE(t.book.check(kept).ok());
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(t.book.create("other", "reader", kWeek, "uid 0").ok());
    EXPECT_TRUE(t.book.revoke("other").ok());
  }
  stop = true;
  asking.join();
}

TEST(TokenService, TellsASecretOnceAndKeepsAnAudit) {
  Tokens t;
  CommandRouter admins(Role::admin);
  QueuedCommands commands(t.clock, admins, t.log);
  const std::string audit = t.folder.file("audit.jsonl");
  TokenService service(t.clock, t.book, commands, admins, AuditLog(audit), {});
  const auto ask = [&](const std::string& text) {
    auto answer = admins.handle(text, Peer{.pid = 7, .uid = 3, .connection = 1});
    if (!answer) {
      commands.drain();
      commands.answer();
      answer = admins.take_late().at(0).second;
    }
    return parse_json(*answer);
  };
  const Json made = ask(R"({"command":"token-create","name":"a","role":"operator","days":2})");
  const std::string secret = made.value("token", "");
  EXPECT_EQ(t.book.check(secret)->role, Role::operates);
  EXPECT_EQ(made["expires_unix_seconds"], 2 * 86400.0);
  const std::string listed = json_text(ask(R"({"command":"token-list"})"));
  EXPECT_NE(listed.find(R"("name":"a","role":"operator","created_by":"uid 3")"), std::string::npos);
  EXPECT_EQ(ask(R"({"command":"token-create","name":"b","role":"admin"})")["code"],
            "invalid_argument");
  EXPECT_TRUE(ask(R"({"command":"token-revoke","name":"a"})").value("ok", false));
  EXPECT_FALSE(t.book.check(secret).ok());
  const std::string log = *read_file(audit);
  EXPECT_NE(log.find(R"("what":"token a","after":"operator until)"), std::string::npos) << log;
  EXPECT_NE(log.find(R"("after":"revoked","why":"token-revoke by uid 3")"), std::string::npos);
  std::string all = listed + log;
  for (const std::string& line : t.lines) all += line;
  EXPECT_EQ(all.find(secret.substr(TokenBook::kPrefix.size())), std::string::npos);
}

}  // namespace
}  // namespace derate
