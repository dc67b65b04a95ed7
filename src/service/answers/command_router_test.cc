#include "service/answers/command_router.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/json_fields.h"

namespace derate {
namespace {

Json ask(CommandRouter& router, const Json& request) {
  return parse_json(router.handle(json_text(request), {7, 1000, 1}).value_or("null"));
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

// What a new operation takes: a struct, its fields, its row and its handler.
struct Blink {
  int times = 1;
};
template <class M, class V>
void visit_fields(M& m, V&& visit) requires FieldsOf<M, Blink> {
  visit(required_field("times", "how often").within(1, 9), m.times);
}

TEST(CommandRouter, ANewOperationNeedsNoOtherCode) {
  const Operation row{.name = "blink",
                      .role = Role::user,
                      .changes = Changes::nothing,
                      .what = "lets a lamp blink",
                      .verb = "",
                      .fields = json_fields::describe_fields<Blink>(),
                      .answer = {},
                      .errors = {},
                      .longest = 100};
  CommandRouter router;
  router.add(row, [](const Json& json, const Peer&) -> CommandRouter::Answer {
    Json fields = json;
    fields.erase("command");
    const auto blink = json_fields::message_of<Blink>(fields, json_fields::Unknown::refused);
    if (!blink.ok()) return CommandRouter::Answer(blink.error());
    return Result<Json>(Json{{"blinked", blink->times}});
  });
  EXPECT_EQ(ask(router, {{"command", "blink"}, {"times", 3}})["blinked"], 3);
  EXPECT_EQ(ask(router, {{"command", "blink"}, {"times", 10}})["error"],
            "times 10: wanted a number from 1 to 9");
}

}  // namespace
}  // namespace derate
