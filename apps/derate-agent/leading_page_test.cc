#include "leading_page.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate::agent {
namespace {

constexpr const char* kAddress = "http://127.0.0.1:4711/ui#secret";

TEST(LeadingPage, IsItsUsersAloneAndGoes) {
  const Folder folder;
  std::string path;
  {
    auto page = LeadingPage::create(folder.file("own"), kAddress);
    ASSERT_TRUE(page.ok()) << page.error().message;
    path = page->path();
    EXPECT_EQ(path.find("secret"), std::string::npos);
    EXPECT_NE(read_file(path)->find("url=" + std::string(kAddress) + "\""), std::string::npos);
    struct stat found {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0600u);
    ASSERT_EQ(::stat(folder.file("own").c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 07777, 0700u);
    const LeadingPage moved = *std::move(page);
    EXPECT_TRUE(read_file(path).ok());
  }
  EXPECT_FALSE(read_file(path).ok());
}

TEST(LeadingPage, IsNotMadeWhereOthersLookIn) {
  const Folder folder;
  ASSERT_EQ(::mkdir(folder.file("open").c_str(), 0755), 0);
  EXPECT_EQ(LeadingPage::create(folder.file("open"), kAddress).error().code, Errc::no_permission);
  ASSERT_EQ(::symlink(folder.file("open").c_str(), folder.file("link").c_str()), 0);
  EXPECT_FALSE(LeadingPage::create(folder.file("link"), kAddress).ok());
}

}  // namespace
}  // namespace derate::agent
