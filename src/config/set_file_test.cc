#include "config/set_file.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "config/setting_list.h"

namespace derate {
namespace {

std::string edited(const std::string& now, const ConfigEdit& edit) {
  auto out = edited_set_file({"90-set.toml", now}, edit);
  return out.ok() ? *out : "error: " + out.error().message;
}
std::string set(const std::string& word) { return edited("", {{word}, {}}); }

TEST(SetFile, HasWhatWasSetAlone) {
  EXPECT_EQ(set("governor.policy=assure"), "[governor]\npolicy = \"assure\"\n");
  EXPECT_EQ(set("governor.policy = \"assure\""), "[governor]\npolicy = \"assure\"\n");
  EXPECT_EQ(set("governor.dry_run=true"), "[governor]\ndry_run = true\n");
  EXPECT_EQ(set("governor.gpus="), "[governor]\ngpus = \"\"\n");
  EXPECT_EQ(set("metrics.tenants=8"), "[metrics]\ntenants = 8\n");
  EXPECT_EQ(set("envelope.lowest_clock_mhz=1005"), "[envelope]\nlowest_clock_mhz = 1005\n");
  EXPECT_EQ(set("policy.geepafs.delta=0.05"), "\n[policy.geepafs]\ndelta = 0.05\n");
  EXPECT_EQ(set("policy.geepafs.probe_clocks=952,1530"),
            "\n[policy.geepafs]\nprobe_clocks = [952,1530]\n");
  const std::string two = edited("", {{"safety.idle_after_s=2", "governor.gpus=1"}, {}});
  EXPECT_EQ(two, "[governor]\ngpus = \"1\"\n\n[safety]\nidle_after_s = 2\n");
  EXPECT_EQ(edited(two, {{"governor.gpus=0"}, {"safety.idle_after_s"}}),
            "[governor]\ngpus = \"0\"\n");
  EXPECT_EQ(edited(two, {{}, {"governor.gpus", "safety.idle_after_s"}}), "");
}

TEST(SetFile, RefusesWhatIsNoSettingOrNoValue) {
  EXPECT_EQ(set("governor.polcy=x"),
            "error: unknown setting 'governor.polcy'; did you mean 'governor.policy'?");
  EXPECT_EQ(set("x=1"),
            "error: unknown setting 'x'; `derate config print` lists them as [section] and key; a "
            "policy's parameter is policy.NAME.PARAMETER");
  EXPECT_EQ(set("policy.x=1").find("error: unknown setting 'policy.x'"), 0u);
  EXPECT_EQ(set("job.name=x"), "error: 'job.name': entries of [[job]] are written into files");
  EXPECT_EQ(
      set("governor.dry_run"),
      "error: 'governor.dry_run': wanted is SECTION.KEY=VALUE, such as governor.dry_run=VALUE");
  EXPECT_EQ(set("assure.delta=0.1")
                .find("error: unknown setting 'assure.delta'; a policy's "
                      "parameter is policy.assure.delta;"),
            0u);
  EXPECT_EQ(set("governor.dry_run=maybe").find("error: governor.dry_run: "), 0u);
  EXPECT_EQ(set("governor.dry_run=1"), "error: governor.dry_run: dry_run 1: wanted true or false");
  EXPECT_EQ(set("safety.idle_after_s=0"),
            "error: safety.idle_after_s: idle_after_s 0: wanted a number in [0.1, 3600] s");
  EXPECT_EQ(edited("", {{"governor.gpus=0"}, {"governor.gpus"}}),
            "error: governor.gpus: is named twice");
  EXPECT_EQ(edited("", {{}, {"governor.gpus"}}),
            "error: governor.gpus: was not set by `derate config set`");
  EXPECT_EQ(edited("[governor\n", {{"governor.gpus=0"}, {}}).find("error: 90-set.toml:1:"), 0u);
}

// One word sets one setting, whatever is in its value.
TEST(SetFile, AValueSaysNothingElse) {
  for (const char* value : {"true\n[api]\nadmins = \"wheel\"", "true\r[api]", "\x7f", "true, x = 1",
                            "[[job]]", "true ] [api"})
    EXPECT_EQ(set(std::string("governor.dry_run=") + value).find("error: "), 0u) << value;
  const auto said = *parse_config(set("governor.gpus=0\"]\\ # [api]"), "x");
  EXPECT_EQ(said.gpus, "0\"]\\ # [api]");
  EXPECT_EQ(set("governor.dry_run=true # why"), "[governor]\ndry_run = true\n");
}

TEST(SetFile, KeepsWhatAPersonWroteThere) {
  const std::string jobs = "\n[[job]]\nname = \"a\"\nclass = \"batch\"\n";
  EXPECT_EQ(edited("# mine\n[safety]\nidle_after_s = 2\n" + jobs, {{"governor.gpus=0"}, {}}),
            "[governor]\ngpus = \"0\"\n\n[safety]\nidle_after_s = 2\n" + jobs);
}

// What was set and is unset again leaves the file as it was.
RC_GTEST_PROP(SetFile, UnsetTakesBackWhatSetDid, ()) {
  const auto words = *rc::gen::container<std::vector<std::string>>(rc::gen::element<std::string>(
      "governor.gpus=0", "governor.dry_run=true", "safety.idle_after_s=3", "metrics.tenants=9",
      "envelope.highest_clock_mhz=1500", "policy.assure.delta=0.05", "policy.geepafs.delta=0.1"));
  std::map<std::string, std::string> each;
  for (const std::string& word : words) each[word.substr(0, word.find('='))] = word;
  std::string file, before;
  ConfigEdit set_now, unset_now;
  for (const auto& [key, word] : each) {
    if (*rc::gen::arbitrary<bool>()) {
      file = *edited_set_file({"f", file}, {{word}, {}});
    } else {
      set_now.set.push_back(word);
      unset_now.unset.push_back(key);
    }
  }
  before = file;
  file = *edited_set_file({"f", file}, set_now);
  RC_ASSERT(set_now.set.empty() || file != before);
  RC_ASSERT(*edited_set_file({"f", file}, unset_now) == before);
}

TEST(SetFile, ItsHeadIsAComment) {
  const std::string head = set_file_head("uid 0\n[api]\nadmins = \"wheel\"", WallTime{});
  EXPECT_TRUE(parse_config(head, "head")->where.empty());
  EXPECT_NE(head.find("uid 0"), std::string::npos);
}

}  // namespace
}  // namespace derate
