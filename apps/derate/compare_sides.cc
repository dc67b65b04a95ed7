#include "compare_sides.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "compare_view.h"
#include "govern/fleet/policy_choice.h"

namespace derate::cli {
namespace {

constexpr const char* kVersus = "--vs";
// In place of a policy: the command alone.
constexpr const char* kNone = "none";

using Words = std::vector<std::string>;

// A side of one word with a blank is a line for the shell.
Words command_of(Words words) {
  if (words.size() != 1 || words[0].find(' ') == std::string::npos) return words;
  return {"/bin/sh", "-c", words[0]};
}

// "power-cap watts=300": the policy, and its parameters.
struct SidePolicy {
  std::string name;
  Words set;
};

Result<SidePolicy> side_policy(std::string_view text) {
  SidePolicy out;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    if (out.name.empty())
      out.name = word;
    else
      out.set.emplace_back(word);
  }
  if (out.name == kNone && out.set.empty()) return out;
  TRY(choose_policy({.policy = out.name, .assignments = out.set, .config = {}}, Settings{}));
  return out;
}

Result<std::vector<SidePolicy>> policies_of(const CompareOptions& options) {
  std::vector<SidePolicy> out;
  for (const std::string_view text : split(options.policies, ','))
    if (!options.policies.empty()) out.push_back(TRY(side_policy(text)));
  for (const std::string_view text : split(options.limits, ','))
    if (!options.limits.empty())
      out.push_back(TRY(side_policy(fmt::format("power-cap watts={}", text))));
  if (out.size() == 2) return out;
  return Error{Errc::invalid_argument,
               fmt::format("{} '{}': allowed are two with a comma between them",
                           options.policies.empty() ? "--limits" : "--policies",
                           options.policies.empty() ? options.limits : options.policies)};
}

// The command under one of the policies.
Words governed(const SidePolicy& policy, const CompareOptions& options, const std::string& program,
               const std::string& gpus) {
  Words command = command_of(options.command);
  if (policy.name == kNone) return command;
  Words out{program, "run", "--policy", policy.name};
  for (const std::string& set : policy.set) out.insert(out.end(), {"--set", set});
  if (!gpus.empty()) out.insert(out.end(), {"-i", gpus});
  if (options.as_root) out.emplace_back("--as-root");
  out.emplace_back("--");
  out.insert(out.end(), command.begin(), command.end());
  return out;
}

Words shown(const SidePolicy& policy) {
  Words out{policy.name};
  out.insert(out.end(), policy.set.begin(), policy.set.end());
  return out;
}

Result<CompareSides> governed_sides(const CompareOptions& options, const std::string& program,
                                    const std::string& gpus) {
  if (std::count(options.command.begin(), options.command.end(), kVersus) != 0)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}': with --policies or --limits there is one command and no --vs",
                             words_text(options.command))};
  if (!options.sim.chip.empty())
    return Error{Errc::invalid_argument,
                 "--sim: a policy governs GPUs of a driver; `derate sim serve` simulates one"};
  const std::vector<SidePolicy> both = TRY(policies_of(options));
  return CompareSides{.a = governed(both[0], options, program, gpus),
                      .b = governed(both[1], options, program, gpus),
                      .shown_a = shown(both[0]),
                      .shown_b = shown(both[1]),
                      .governs = true};
}

}  // namespace

Result<CompareSides> compare_sides(const CompareOptions& options, const std::string& program,
                                   const std::string& gpus) {
  if (!options.policies.empty() || !options.limits.empty())
    return governed_sides(options, program, gpus);
  const Words& words = options.command;
  const auto at = std::find(words.begin(), words.end(), kVersus);
  CompareSides out{.shown_a = {words.begin(), at}, .shown_b = {}};
  if (at != words.end()) out.shown_b.assign(at + 1, words.end());
  if (out.shown_a.empty() || out.shown_b.empty() ||
      std::count(words.begin(), words.end(), kVersus) != 1)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}': allowed are two commands with --vs between them: derate "
                             "compare -- 'A' --vs 'B'",
                             words_text(words))};
  out.a = command_of(out.shown_a);
  out.b = command_of(out.shown_b);
  return out;
}

}  // namespace derate::cli
