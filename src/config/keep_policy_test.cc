#include "config/keep_policy.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using Words = std::vector<std::string>;

TEST(KeepPolicy, WritesWhatGovernsAndSaysHowThatIsUndone) {
  const KeptPolicy kept = keep_policy(
      {.policy = "assure", .assignments = {"delta=0.2", "delta=0.05"}, .gpus = {"a"}}, {});
  EXPECT_EQ(kept.set, (Words{"governor.dry_run=false", "governor.govern=true", "governor.gpus=a",
                             "governor.policy=assure", "policy.assure.delta=0.05"}));
  EXPECT_EQ(kept.undo,
            "derate config set --unset governor.dry_run --unset governor.govern --unset "
            "governor.gpus --unset governor.policy --unset policy.assure.delta");
}

// Settings that the drop-in had come back; those of other files need no word.
TEST(KeepPolicy, UndoesToWhatTheDropInSaid) {
  const std::vector<SettingNow> now = {{"governor.policy", "\"geepafs\"", true},
                                       {"governor.gpus", "\"0, 1\"", true},
                                       {"governor.govern", "true", false}};
  EXPECT_EQ(keep_policy({.policy = "assure"}, now).undo,
            "derate config set --unset governor.dry_run --unset governor.govern "
            "'governor.gpus=0, 1' governor.policy=geepafs");
}

TEST(KeepPolicy, GpusUnderTheSamePolicyStay) {
  std::vector<SettingNow> now = {{"governor.policy", "\"assure\"", true},
                                 {"governor.gpus", "\"0, b\"", true},
                                 {"governor.dry_run", "false", false},
                                 {"governor.govern", "true", true}};
  const auto gpus = [&](const WishToKeep& wish) { return keep_policy(wish, now).set.at(2); };
  EXPECT_EQ(gpus({.policy = "assure", .gpus = {"b", "c"}}), "governor.gpus=0,b,c");
  EXPECT_EQ(gpus({.policy = "assure"}), "governor.gpus=");
  EXPECT_EQ(gpus({.policy = "geepafs", .gpus = {"c"}}), "governor.gpus=c");
  EXPECT_EQ(gpus({.policy = "assure", .assignments = {"delta=0.1"}, .gpus = {"c"}}),
            "governor.gpus=c");
  now[1].value = "";
  EXPECT_EQ(gpus({.policy = "assure", .gpus = {"c"}}), "governor.gpus=");
  now[3].value = "false";
  EXPECT_EQ(gpus({.policy = "assure", .gpus = {"c"}}), "governor.gpus=c");
}

TEST(KeepPolicy, WithoutANameItIsTheConfigurationsPolicy) {
  const std::vector<SettingNow> now = {{"governor.policy", "\"geepafs\"", false}};
  EXPECT_EQ(keep_policy({.assignments = {"delta=0.1"}, .dry_run = true}, now).set,
            (Words{"governor.dry_run=true", "governor.govern=true",
                   "governor.gpus=", "policy.geepafs.delta=0.1"}));
}

}  // namespace
}  // namespace derate
