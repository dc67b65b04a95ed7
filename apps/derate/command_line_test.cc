#include "command_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace derate::cli {
namespace {

std::variant<Verb, Exit> parse(std::vector<const char*> words) {
  words.insert(words.begin(), "derate");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

// The options of that verb; none of it fails the test.
template <class Options>
Options parsed(const std::vector<const char*>& words) {
  const auto result = parse(words);
  const Verb* verb = std::get_if<Verb>(&result);
  if (verb == nullptr || !std::holds_alternative<Options>(*verb)) {
    ADD_FAILURE() << words.front() << ": another verb, or none";
    return {};
  }
  return std::get<Options>(*verb);
}

int exit_of(const std::vector<const char*>& words) {
  const auto result = parse(words);
  return std::holds_alternative<Exit>(result) ? std::get<Exit>(result).code : -1;
}

TEST(CommandLine, WhatFollowsTwoDashesIsTheCommands) {
  const auto run = parsed<RunOptions>({"run", "--dry-run", "-i", "0,2", "--policy", "geepafs",
                                       "--set", "delta=0.05", "--", "train", "--policy", "x"});
  EXPECT_TRUE(run.dry_run);
  EXPECT_EQ(run.gpus.named, "0,2");
  EXPECT_EQ(run.policy.policy, "geepafs");
  EXPECT_EQ(run.policy.assignments, std::vector<std::string>{"delta=0.05"});
  EXPECT_EQ(run.command, (std::vector<std::string>{"train", "--policy", "x"}));
}

TEST(CommandLine, WithoutOptionsTheDefaultsHold) {
  EXPECT_EQ(parsed<BillOptions>({"bill"}).by, "user");
  EXPECT_EQ(parsed<BillOptions>({"bill"}).to, "now");
  EXPECT_FALSE(parsed<BillOptions>({"bill"}).price);
  EXPECT_EQ(parsed<EnergyOptions>({"energy"}).interval_s, 0.1);
  EXPECT_FALSE(parsed<StatusOptions>({"status"}).json);
  EXPECT_TRUE(parsed<StatusOptions>({"status", "--json"}).json);
}

TEST(CommandLine, NumbersAreCheckedWhereTheyAreRead) {
  EXPECT_EQ(parsed<BillOptions>({"bill", "--price", "0.31"}).price, 0.31);
  EXPECT_EQ(exit_of({"bill", "--price", "cheap"}), 2);
  EXPECT_EQ(parsed<TopOptions>({"top", "--interval", "0.5"}).interval_s, 0.5);
  EXPECT_EQ(exit_of({"top", "--interval", "0"}), 2);
}

TEST(CommandLine, EveryTimeIsWrittenInTheSameForms) {
  EXPECT_EQ(parsed<EnergyOptions>({"energy", "--for", "2m"}).time_s, 120);
  EXPECT_EQ(parsed<EnergyOptions>({"energy", "--interval", "500ms"}).interval_s, 0.5);
  EXPECT_EQ(parsed<AttributeOptions>({"attribute", "--for", "1h"}).time_s, 3600);
  EXPECT_EQ(parsed<TopOptions>({"top", "--interval", "1m"}).interval_s, 60);
  EXPECT_EQ(parsed<RestoreOptions>({"restore", "--wait", "10s"}).wait_s, 10);
  EXPECT_EQ(parsed<RecordOptions>({"record", "-o", "x", "--seconds", "10"}).seconds, 10);
  EXPECT_EQ(parsed<RecordOptions>({"record", "-o", "x", "--for", "10s"}).seconds, 10);
  EXPECT_EQ(parsed<SimJobOptions>({"sim", "job", "--work", "1.5m"}).work_s, 90);
  EXPECT_EQ(parsed<DemoOptions>({"demo", "--job-seconds", "1h"}).job_seconds, 3600);
  EXPECT_EQ(parsed<TuneRunOptions>({"tune", "run", "--grace", "0", "--", "x"}).grace_s, 0);
  EXPECT_EQ(exit_of({"energy", "--for", "soon"}), 2);
  EXPECT_EQ(exit_of({"energy", "--for", "5d"}), 2);
  EXPECT_EQ(exit_of({"top", "--interval", "nan"}), 2);
}

TEST(CommandLine, SimulatedGpusAreCountedByANameOfTheirOwn) {
  EXPECT_EQ(
      parsed<RecordOptions>({"record", "-o", "x", "--sim", "H200", "--sim-gpus", "4"}).sim.gpus, 4);
  EXPECT_EQ(parsed<RecordOptions>({"record", "-o", "x", "--sim", "H200", "--gpus", "4"}).sim.gpus,
            4);
}

TEST(CommandLine, WhatIsWrongEndsWithTheCodeForIt) {
  EXPECT_EQ(exit_of({"governn"}), 2);
  EXPECT_EQ(exit_of({"status", "--no-such-option"}), 2);
  EXPECT_EQ(exit_of({"policy", "show"}), 2);
  EXPECT_EQ(exit_of({"status", "--help"}), 0);
  EXPECT_EQ(exit_of({"help", "status"}), 0);
  EXPECT_EQ(exit_of({"help", "policy"}), 0);
  EXPECT_EQ(exit_of({"help", "policy", "set"}), 0);
  EXPECT_EQ(exit_of({"help", "stauts"}), 2);
  // So that a script tells it from the codes of the command itself.
  EXPECT_EQ(exit_of({"run", "--no-such-option", "--", "train"}), 125);
}

TEST(Completion, IsForEveryShellThatWeKnow) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const auto script = completion_script(shell);
    ASSERT_TRUE(script.ok()) << shell;
    for (const char* word : {"attribute", "interval", "policy"})
      EXPECT_NE(script->find(word), std::string::npos) << shell << ": " << word;
  }
  EXPECT_EQ(completion_script("csh").error().message, "shell 'csh': allowed are bash, zsh, fish");
}

TEST(ManualPage, HasEveryVerb) {
  const std::string page = manual_page();
  for (const char* verb : {"run", "policy set", "tune job create", "lab attribution", "bill"})
    EXPECT_NE(page.find(".SS derate " + std::string(verb) + "\n"), std::string::npos) << verb;
}

TEST(ManualPage, OfAVerbHasWhatIsBelowIt) {
  const std::string page = *manual_page_of("tune");
  for (const char* part :
       {".TH DERATE-TUNE 1", "\nderate-tune \\- ", ".SS derate tune job create\n",
        ".SS derate tune run\n", ".SH SEE ALSO\n"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find(".SS derate lab"), std::string::npos);
  EXPECT_EQ(manual_page_of("no").error().message, "no verb 'no'");
}

TEST(ManualPage, IsThereForEveryVerbOfTheList) {
  std::istringstream verbs(verbs_with_pages());
  int pages = 0;
  for (std::string verb; std::getline(verbs, verb); ++pages)
    EXPECT_TRUE(manual_page_of(verb).ok()) << verb;
  EXPECT_GT(pages, 15);
}

}  // namespace
}  // namespace derate::cli
