#include "store/token_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include "base/test_as_user.h"
#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

struct Home {
  Folder folder;
  std::string file = folder.file("tokens.json");
  void write(const std::string& text, mode_t mode = 0600) const {
    EXPECT_TRUE(write_file_atomically(file, text, Durable::no, mode).ok());
    EXPECT_EQ(::chmod(file.c_str(), mode), 0);
  }
  std::string error() const {
    const auto read = read_tokens(file);
    return read.ok() ? "" : read.error().message;
  }
};

WallTime some_time() { return WallTime(from_seconds(*rc::gen::inRange(0, 2'000'000'000))); }

RC_GTEST_PROP(TokenFile, ReadsWhatItWrites, ()) {
  const Home home;
  std::vector<TokenRecord> tokens;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
    tokens.push_back({*rc::gen::element<std::string>("a", "grafana"),
                      *rc::gen::element<std::string>("reader", "operator"),
                      token_hash("derate_\"\n"), "uid 0", some_time(), some_time()});
  const std::string file = home.folder.file("state") + "/tokens.json";  // a first start: no folder
  RC_ASSERT(read_tokens(file)->tokens.empty());
  RC_ASSERT(write_tokens(file, tokens).ok());
  RC_ASSERT(read_tokens(file)->tokens == tokens && !read_tokens(file)->had_secrets);
  struct stat found {};
  RC_ASSERT(::stat(file.c_str(), &found) == 0 && (found.st_mode & 07777) == 0600);
}

TEST(TokenFile, WhatOthersCouldReadOrWriteIsRefused) {
  const Home home;
  ASSERT_TRUE(write_tokens(home.file, {}).ok());
  EXPECT_EQ(home.error(), "");
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0601, 0700, 04600, 01600}) {
    ASSERT_EQ(::chmod(home.file.c_str(), mode), 0);
    EXPECT_NE(home.error().find("wanted is 0600"), std::string::npos) << mode;
  }
  for (const mode_t mode : {0600, 0400}) {
    ASSERT_EQ(::chmod(home.file.c_str(), mode), 0);
    EXPECT_EQ(home.error(), "") << mode;
  }
  const Home linked;
  ASSERT_EQ(::symlink(home.file.c_str(), linked.file.c_str()), 0);
  EXPECT_NE(linked.error().find("is a link"), std::string::npos);
  const Home pipe;
  ASSERT_EQ(::mkfifo(pipe.file.c_str(), 0600), 0);
  EXPECT_NE(pipe.error().find("is no file"), std::string::npos);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chmod(home.file.c_str(), 0600), 0);
  ASSERT_EQ(::chown(home.file.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(home.error().find("belongs to uid 65534"), std::string::npos);
}

TEST(TokenFile, WhatIsMalformedIsRefusedWhole) {
  const Home home;
  ASSERT_TRUE(write_tokens(home.file, {{"a", "user", "s", "uid 0", {}, {}}}).ok());
  const std::string good = *read_file(home.file);
  // Cut anywhere it is no page of fewer tokens.
  for (std::size_t size = 0; size + 2 < good.size(); ++size) {
    home.write(good.substr(0, size));
    EXPECT_FALSE(read_tokens(home.file).ok()) << size;
  }
  for (const char* text :
       {"[]", "{}", R"({"schema":"derate/tokens/3","tokens":[]})",
        R"({"schema":"derate/tokens/2","tokens":{}})",
        R"({"schema":"derate/tokens/2","tokens":[{"name":"a"}]})",
        R"({"schema":"derate/tokens/2","tokens":[],"more":1})",
        R"({"schema":"derate/tokens/2","tokens":[{"name":"a","role":"user","sha256":"s",)"
        R"("created_by":"","created_unix_seconds":1e300,"expires_unix_seconds":0}]})",
        R"({"schema":"derate/tokens/2","tokens":[{"name":"a","role":"user","secret":"s",)"
        R"("created_by":"","created_unix_seconds":1,"expires_unix_seconds":0}]})",
        R"({"schema":"derate/tokens/1","tokens":[{"name":"a","role":"user","sha256":"s",)"
        R"("created_by":"","created_unix_seconds":1,"expires_unix_seconds":0}]})"}) {
    home.write(text);
    EXPECT_EQ(read_tokens(home.file).error().code, Errc::bad_data) << text;
  }
}

// FIPS 180-2, appendix B.1.
TEST(TokenFile, AHashIsSha256) {
  EXPECT_EQ(token_hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TokenFile, HasNoSecret) {
  const Home home;
  ASSERT_TRUE(write_tokens(home.file, {{"a", "user", token_hash("derate_s"), "", {}, {}}}).ok());
  EXPECT_EQ(read_file(home.file)->find("derate_s"), std::string::npos);
}

TEST(TokenFile, ReadsTheSecretsOfDerate01) {
  const Home home;
  home.write(R"({"schema":"derate/tokens/1","tokens":[{"name":"a","role":"user",)"
             R"("secret":"derate_s","created_by":"uid 0","created_unix_seconds":1,)"
             R"("expires_unix_seconds":2}]})");
  const auto read = read_tokens(home.file);
  ASSERT_TRUE(read.ok()) << home.error();
  EXPECT_TRUE(read->had_secrets);
  ASSERT_EQ(read->tokens.size(), 1u);
  EXPECT_EQ(read->tokens[0].hash, token_hash("derate_s"));
}

}  // namespace
}  // namespace derate
