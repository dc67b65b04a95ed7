#include "service/answers/token_book.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <set>
#include <thread>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "service/answers/request_lines.h"
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
  TokenBook book{file, clock, log, TokenBook::Where::at_once};
};

// What was begun, when it has been written.
Result<TokenBook::NewToken> create(TokenBook& book, const std::string& name, std::string_view role,
                                   Duration lifetime = kWeek) {
  auto made = TRY(book.create(name, role, lifetime, "uid 0"));
  const auto written = book.poll(20s);
  if (!written->ok()) return written->error();
  return made;
}
Result<void> revoke(TokenBook& book, const std::string& name) {
  TRY(book.revoke(name));
  return *book.poll(20s);
}

TEST(TokenBook, WhoHasASecretHasItsRole) {
  Tokens t;
  const std::string reader = create(t.book, "grafana", "reader")->secret;
  const std::string op = create(t.book, "ops.1", "operator")->secret;
  EXPECT_EQ(reader.size(), TokenBook::kLength);
  EXPECT_EQ(t.book.check(reader)->role, Role::reader);
  EXPECT_EQ(t.book.check(op)->role, Role::operates);
  EXPECT_EQ(t.book.check(op)->name, "ops.1");
  EXPECT_EQ(t.book.wrong(), 0u);
  // Another process reads the same.
  const TokenBook other(t.file, t.clock, {}, TokenBook::Where::at_once);
  EXPECT_EQ(other.check(op)->role, Role::operates);
  EXPECT_TRUE(revoke(t.book, "ops.1").ok());
  EXPECT_FALSE(t.book.check(op).ok());
  EXPECT_TRUE(t.book.check(reader).ok());
  EXPECT_EQ(revoke(t.book, "ops.1").error().code, Errc::not_found);
  EXPECT_EQ(t.book.wrong(), 1u);
}

// Nothing but the secret itself: not one letter more, less or other.
RC_GTEST_PROP(TokenBook, NothingElseIsBelieved, ()) {
  Tokens t;
  const std::string secret = create(t.book, "a", "user")->secret;
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
    const auto made = create(t.book, "t" + std::to_string(i), "reader");
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
  EXPECT_EQ(create(t.book, "more", "reader").error().code, Errc::busy);
}

TEST(TokenBook, EndsWithItsTime) {
  Tokens t;
  const std::string secret = create(t.book, "a", "user")->secret;
  t.clock.advance(kWeek - 1s);
  EXPECT_TRUE(t.book.check(secret).ok());
  EXPECT_FALSE(create(t.book, "a", "user").ok());
  t.clock.advance(1s);
  EXPECT_NE(t.book.check(secret).error().message.find("the token 'a' expired at"),
            std::string::npos);
  EXPECT_EQ(t.book.wrong(), 1u);
  EXPECT_TRUE(create(t.book, "a", "reader").ok());
  EXPECT_EQ(t.book.list()->size(), 1u);
}

TEST(TokenBook, IsNoAdmins) {
  Tokens t;
  for (const char* role : {"admin", "agent", "Reader", "", "operates"})
    EXPECT_EQ(create(t.book, "a", role).error().code, Errc::invalid_argument);
  for (const char* name : {"", "-a", ".a", "a b", "a\n", "../a"})
    EXPECT_EQ(create(t.book, name, "user").error().code, Errc::invalid_argument);
  // Nor one that somebody wrote into the file.
  const std::string secret = std::string(TokenBook::kPrefix) + std::string(43, 'A');
  ASSERT_TRUE(
      write_tokens(t.file, {{"a", "admin", token_hash(secret), "", {}, WallTime(kWeek)}}).ok());
  t.book.load();
  EXPECT_FALSE(t.book.check(secret).ok());
}

TEST(TokenBook, AFileThatIsRefusedGivesNobodyARole) {
  Tokens t;
  const std::string secret = create(t.book, "a", "user")->secret;
  ASSERT_EQ(::chmod(t.file.c_str(), 0644), 0);
  t.book.load();
  t.book.load();
  EXPECT_EQ(t.lines.size(), 1u);
  EXPECT_FALSE(t.book.check(secret).ok());
  for (const auto code : {create(t.book, "b", "user").error().code,
                          revoke(t.book, "a").error().code, t.book.list().error().code})
    EXPECT_EQ(code, Errc::no_permission);
  ASSERT_EQ(::chmod(t.file.c_str(), 0600), 0);
  t.book.load();
  EXPECT_TRUE(t.book.check(secret).ok());
}

// What cannot be written has not been done.
TEST(TokenBook, IsAsItWasWhereItCannotBeWritten) {
  Tokens t;
  const std::string secret = create(t.book, "a", "user")->secret;
  TokenBook nowhere(t.folder.file("none") + "/tokens.json", t.clock, {});
  ASSERT_TRUE(write_file_atomically(t.folder.file("none"), "a file").ok());
  EXPECT_FALSE(create(nowhere, "b", "user").ok());
  EXPECT_TRUE(nowhere.list()->empty());
  EXPECT_EQ(TokenBook("", t.clock, {}).create("b", "user", kWeek, "").error().code,
            Errc::not_supported);
}

TEST(TokenBook, MayBeAskedWhileItChanges) {
  Tokens t;
  const std::string kept = create(t.book, "kept", "user")->secret;
  std::atomic<bool> stop = false;
  std::thread asking([&] {
    while (!stop) EXPECT_TRUE(t.book.check(kept).ok());
  });
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(create(t.book, "other", "reader").ok());
    EXPECT_TRUE(revoke(t.book, "other").ok());
  }
  stop = true;
  asking.join();
}

TEST(TokenBook, KeepsNoSecretOnDisk) {
  Tokens t;
  const std::string secret = create(t.book, "a", "user")->secret;
  EXPECT_EQ(read_file(t.file)->find(secret.substr(TokenBook::kPrefix.size())), std::string::npos);
}

// The secrets of a file of Derate 0.1 still open what they did, and are in it no more.
TEST(TokenBook, AnOldFileIsConvertedOnce) {
  Tokens t;
  const std::string secret = std::string(TokenBook::kPrefix) + std::string(43, 'A');
  ASSERT_TRUE(write_file_atomically(
                  t.file,
                  R"({"schema":"derate/tokens/1","tokens":[{"name":"a","role":"user","secret":")" +
                      secret + R"(","created_by":"uid 0","created_unix_seconds":0,)" +
                      R"("expires_unix_seconds":1e6}]})",
                  Durable::no, 0600)
                  .ok());
  t.book.load();
  EXPECT_EQ(t.book.check(secret)->name, "a");
  EXPECT_EQ(t.lines, std::vector<std::string>{});
  const auto kept = read_tokens(t.file);
  ASSERT_TRUE(kept.ok());
  EXPECT_FALSE(kept->had_secrets);
  EXPECT_EQ(read_file(t.file)->find(secret), std::string::npos);
  t.book.load();
  EXPECT_EQ(t.book.check(secret)->role, Role::user);
}

// A disk that takes its time costs the caller nothing, and a token holds when it is written.
TEST(TokenBook, IsWrittenOnAnotherThread) {
  Tokens t;
  TokenBook book(t.file, t.clock, {});
  const std::string secret = book.create("a", "user", kWeek, "uid 0")->secret;
  EXPECT_FALSE(book.check(secret).ok());
  EXPECT_EQ(book.create("b", "user", kWeek, "uid 0").error().code, Errc::busy);
  EXPECT_TRUE(book.poll(20s)->ok());
  EXPECT_TRUE(book.check(secret).ok());
  EXPECT_FALSE(book.poll());
}

TEST(TokenService, TellsASecretOnceAndKeepsAnAudit) {
  Tokens t;
  CommandRouter admins(Role::admin);
  RequestLines lines(admins);
  const std::string audit = t.folder.file("audit.jsonl");
  TokenService service(t.clock, t.book, admins, AuditLog(audit), {});
  const auto ask = [&](const std::string& text) {
    auto answer = lines.handle(text, Peer{.pid = 7, .uid = 3, .connection = 1});
    if (!answer) answer = lines.take_late().at(0).second;
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

// They are done one after the other, each answered when it is written.
TEST(TokenService, ChangesWaitForTheOneBefore) {
  Tokens t;
  TokenBook book(t.file, t.clock, {});
  CommandRouter admins(Role::admin);
  RequestLines lines(admins);
  TokenService service(t.clock, book, admins, {}, {});
  for (std::uint64_t connection = 1; connection <= 5; ++connection) {
    const std::string name = "t" + std::to_string(connection);
    EXPECT_FALSE(lines.handle(R"({"command":"token-create","name":")" + name + "\"}",
                              Peer{.uid = 0, .connection = connection}));
  }
  SystemClock real;
  std::vector<std::uint64_t> answered;
  for (int i = 0; i < 5000 && answered.size() < 5; ++i) {
    service.step();
    for (const auto& [connection, text] : lines.take_late()) {
      answered.push_back(connection);
      EXPECT_EQ(text.find(R"({"ok":true)"), 0u) << text;
    }
    real.sleep_until(real.now() + 2ms);
  }
  EXPECT_EQ(answered, (std::vector<std::uint64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(read_tokens(t.file)->tokens.size(), 5u);
}

TEST(TokenService, AtTheEndWhatWaitsIsAnswered) {
  Tokens t;
  TokenBook book(t.file, t.clock, {});
  CommandRouter admins(Role::admin);
  RequestLines lines(admins);
  TokenService service(t.clock, book, admins, {}, {});
  for (const std::uint64_t connection : {1, 2})
    (void)lines.handle(R"({"command":"token-create","name":"a"})",
                       Peer{.uid = 0, .connection = connection});
  service.refuse({Errc::busy, "derated ends"});
  const auto late = lines.take_late();
  ASSERT_EQ(late.size(), 2u);
  EXPECT_EQ(late[0].second.find(R"({"ok":true)"), 0u);
  EXPECT_NE(late[1].second.find("derated ends"), std::string::npos);
}

}  // namespace
}  // namespace derate
