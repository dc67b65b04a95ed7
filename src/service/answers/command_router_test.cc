#include "service/answers/command_router.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "service/answers/request_lines.h"

namespace derate {
namespace {

Json ask(CommandRouter& router, const Json& request) {
  RequestLines lines(router);
  return parse_json(lines.handle(json_text(request), {7, 1000, 1}).value_or("null"));
}

TEST(CommandRouter, HandsTheStructOfARequestAndWhoAsks) {
  CommandRouter router(Role::admin);
  router.add<Release>([](const Release& request, const Peer& peer) -> Result<Json> {
    return Json{{"message", request.gpus + " " + std::to_string(peer.uid)}};
  });
  EXPECT_EQ(ask(router, {{"command", "release"}, {"gpus", "0,1"}})["message"], "0,1 1000");
  EXPECT_EQ(ask(router, {{"command", "release"}, {"gpu", "0"}})["code"], "invalid_argument");
  EXPECT_EQ(ask(router, {{"command", "pause"}})["error"], "command 'pause': allowed are release");
}

TEST(CommandRouter, WhoHasTooLowARoleIsRefusedEvenWhereItIsAnswered) {
  CommandRouter router(Role::user);
  bool asked = false;
  router.add<Pause>([&](const Pause&, const Peer&) -> Result<Json> {
    asked = true;
    return Json::object();
  });
  EXPECT_EQ(ask(router, {{"command", "pause"}})["code"], "no_permission");
  EXPECT_EQ(ask(router, {{"command", "policy-set"}})["code"], "no_permission");
  EXPECT_FALSE(asked);
}

TEST(CommandRouter, ARequestLongerThanItsOperationAllowsIsRefused) {
  CommandRouter router;
  router.add<WindowCancel>([](const auto&, const Peer&) -> Result<Json> { return Json::object(); });
  const std::string name(operation<WindowCancel>().longest, 'x');
  EXPECT_EQ(ask(router, {{"command", "window-cancel"}, {"name", name}})["code"],
            "invalid_argument");
}

TEST(CommandRouter, AnAnswerThatComesLaterGoesToWhoServesItsConnection) {
  CommandRouter router;
  RequestLines lines(router);
  std::vector<std::uint64_t> others;
  router.send_late(100, [&](std::uint64_t connection, const Result<Json>& answer) {
    others.push_back(connection);
    EXPECT_EQ((*answer)["message"], "done");
  });
  for (const std::uint64_t connection : {1, 99, 100, 101})
    router.later(connection, Json{{"message", "done"}});
  const auto late = lines.take_late();
  ASSERT_EQ(late.size(), 2u);
  EXPECT_EQ(late[1].first, 99u);
  EXPECT_EQ(late[1].second, R"({"ok":true,"message":"done"})");
  EXPECT_EQ(others, (std::vector<std::uint64_t>{100, 101}));
}

}  // namespace
}  // namespace derate
