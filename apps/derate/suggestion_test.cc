// Mistyped words of all kinds, refused where users meet the refusal.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "attrib/split.h"
#include "base/text.h"
#include "command_line.h"
#include "config/config.h"
#include "config/settings.h"
#include "device/sim/sim_chip.h"
#include "device/sim/sim_workload.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"

namespace derate::cli {
namespace {

// The message that answers a word, empty where it is not refused.
using Refusal = std::function<std::string(const std::string&)>;

struct Word {
  std::string kind, word;
  std::string wanted;              // what the suggestion has to be
  std::set<std::string> siblings;  // words that are right in its place, in small letters
  Refusal refusal;
};

std::string answer_to(const std::string& path, const std::string& word) {
  std::vector<std::string> words = {"derate"};
  for (const std::string_view each : split(path, ' '))
    if (!each.empty()) words.emplace_back(each);
  words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& each : words) argv.push_back(each.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  (void)parse_command_line(static_cast<int>(argv.size()), argv.data());
  (void)testing::internal::GetCapturedStdout();
  return testing::internal::GetCapturedStderr();
}

template <class T>
std::string message_of(const Result<T>& result) {
  return result.ok() ? "" : result.error().message;
}

void add(std::vector<Word>& out, const std::string& kind, const std::vector<std::string>& words,
         const Refusal& refusal) {
  std::set<std::string> siblings;
  for (const std::string& word : words) siblings.insert(to_lower(word));
  for (const std::string& word : words)
    out.push_back({kind, word, fmt::format("did you mean '{}'?", word), siblings, refusal});
}

void add_command_line(std::vector<Word>& out) {
  for (const VerbWords& verb : all_verbs()) {
    const auto refusal = [path = verb.path](const std::string& w) { return answer_to(path, w); };
    add(out, "verb", verb.verbs, refusal);
    std::vector<std::string> options;
    for (const std::string& option : verb.options)
      if (option.starts_with("--")) options.push_back(option);
    const std::size_t first = out.size();
    add(out, "option", options, refusal);
    for (std::size_t i = first; i < out.size(); ++i)
      out[i].wanted = fmt::format("did you mean {}?", out[i].word);
  }
}

void add_settings(std::vector<Word>& out) {
  std::map<std::string, std::vector<std::string>> keys;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto&) {
    keys[std::string(info.section)].emplace_back(info.key);
  });
  for (const auto& [section, words] : keys)
    add(out, "key", words, [section](const std::string& word) {
      return message_of(parse_config(fmt::format("[{}]\n\"{}\" = 1\n", section, word), "x.toml"));
    });
}

std::vector<Word> all_words() {
  std::vector<Word> out;
  add_command_line(out);
  std::vector<std::string> names;
  for (const PolicyInfo& info : policies()) names.emplace_back(info.name);
  for (const Mode& mode : modes()) names.emplace_back(mode.name);
  add(out, "policy or mode", names,
      [](const std::string& word) { return message_of(pick_policy(word)); });
  names.clear();
  for (const SimChip& chip : sim_chips()) {
    names.push_back(chip.name);
    std::vector<std::string> workloads;
    const auto built_in = built_in_workloads(chip);
    for (const Workload& workload : *built_in) workloads.push_back(workload.name);
    add(out, "workload", workloads,
        [&chip](const std::string& word) { return message_of(find_workload(chip, word)); });
  }
  add(out, "chip", names, [](const std::string& word) { return message_of(find_sim_chip(word)); });
  names.clear();
  for (const SplitMethodInfo& method : split_methods()) names.emplace_back(method.name);
  add(out, "method", names,
      [](const std::string& word) { return message_of(find_split_method(word)); });
  add_settings(out);
  return out;
}

// One edit: a letter left out, added, exchanged, or swapped with the next. The dashes of an option
// stay.
std::string mistyped(const std::string& word, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return random() % n; };
  const std::size_t first = word.starts_with("--") ? 2 : 0;
  std::string out = word;
  const std::size_t at = first + below(word.size() - first);
  const char letter = static_cast<char>('a' + below(26));
  switch (below(4)) {
    case 0:
      out.erase(at, 1);
      break;
    case 1:
      out.insert(at, 1, letter);
      break;
    case 2:
      out[at] = letter;
      break;
    default:
      if (at + 1 < out.size()) std::swap(out[at], out[at + 1]);
  }
  return out;
}

TEST(Suggestions, AreRightForAtLeast95PercentOfMistypedWords) {
  const std::vector<Word> words = all_words();
  std::mt19937 random(17);
  std::map<std::string, std::pair<int, int>> right_of;  // by kind: right, all
  int right = 0, all = 0;
  std::string wrong;
  while (all < 200) {
    const Word& word = words[random() % words.size()];
    const std::string typo = mistyped(word.word, random);
    // Another word of the same place, or one that is understood in spite of it, is no typo.
    if (typo.empty() || word.siblings.contains(to_lower(typo))) continue;
    const std::string answer = word.refusal(typo);
    if (answer.empty()) continue;
    const bool good = answer.find(word.wanted) != std::string::npos;
    if (!good) wrong += fmt::format("  {} '{}' for '{}': {}\n", word.kind, typo, word.word, answer);
    right += good ? 1 : 0;
    right_of[word.kind].first += good ? 1 : 0;
    ++right_of[word.kind].second;
    ++all;
  }
  fmt::print("right: {} of {}\n{}", right, all, wrong);
  for (const auto& [kind, counts] : right_of)
    fmt::print("  {}: {} of {}\n", kind, counts.first, counts.second);
  EXPECT_GE(right, 190);
}

TEST(Suggestions, NameTheVerbThatWasMeantAndItsUsage) {
  EXPECT_EQ(answer_to("policy", "lst"),
            "derate: policy has no verb 'lst'; did you mean 'list'?\nUsage: derate policy VERB "
            "[OPTION]...\n"
            "`derate policy --help` has the options and examples.\n");
  EXPECT_TRUE(answer_to("run", "--polcy")
                  .starts_with("derate: run has no option '--polcy'; did you mean --policy?\n"
                               "Usage: derate run [OPTION]... -- COMMAND [ARGUMENT]...\n"));
  EXPECT_TRUE(
      answer_to("", "policy").starts_with("derate: policy: a verb is missing; there are: list, "));
  // The words of other programs, and arguments that are options here.
  EXPECT_TRUE(
      answer_to("", "logs").starts_with("derate: no verb 'logs'; did you mean `derate events`?\n"));
  EXPECT_TRUE(
      answer_to("policy", "assure")
          .starts_with(
              "derate: policy has no verb 'assure'; did you mean `derate policy set assure`?\n"));
  EXPECT_TRUE(answer_to("history", "--since")
                  .starts_with("derate: history has no option '--since'; did you mean --from?\n"));
  EXPECT_TRUE(
      answer_to("policy set assure", "0-3")
          .starts_with(
              "derate: policy set: '0-3' is one argument too many; did you mean -i 0-3?\n"));
  EXPECT_TRUE(answer_to("--json", "status")
                  .starts_with("derate: '--json' comes after the verb: derate status --json\n"));
  EXPECT_TRUE(answer_to("status --gpu --json", "--jsn")
                  .starts_with("derate: status has no option '--jsn'; did you mean --json?"));
}

}  // namespace
}  // namespace derate::cli
