#include "page_session.h"

#include <gtest/gtest.h>

namespace derate::agent {
namespace {

TEST(PageSession, TheCodeIsGoodOnce) {
  auto session = *PageSession::create();
  EXPECT_FALSE(session.exchange(""));
  EXPECT_FALSE(session.exchange(session.code() + "x"));
  const auto token = session.exchange(session.code());
  ASSERT_TRUE(token);
  EXPECT_NE(*token, session.code());
  EXPECT_FALSE(session.exchange(session.code()));
  EXPECT_TRUE(session.admits("Bearer " + *token));
  for (const std::string& wrong : {std::string(), *token, "Bearer " + session.code(),
                                   "Bearer " + *token + "x", "Basic " + *token})
    EXPECT_FALSE(session.admits(wrong)) << wrong;
}

TEST(PageSession, NoTokenIsGoodBeforeTheCodeWasBrought) {
  auto session = *PageSession::create();
  EXPECT_FALSE(session.admits("Bearer "));
  EXPECT_NE(session.code(), PageSession::create()->code());
}

}  // namespace
}  // namespace derate::agent
