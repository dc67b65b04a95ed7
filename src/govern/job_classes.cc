#include "govern/job_classes.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "base/text.h"
#include "core/job_class.h"

namespace derate {

namespace {

constexpr std::size_t kMostShown = 32;

// What may stand in a line of a log.
std::string shown(std::string_view text) {
  std::string out(text.substr(0, kMostShown));
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return text.size() > kMostShown ? out + "..." : out;
}

}  // namespace

Result<AskedLoss> parse_asked_loss(std::string_view text) {
  if (const JobClass* named = find_job_class(text))
    return AskedLoss{Fraction(named->delta), named->every_phase};
  const auto delta = parse_double(text);
  if (!delta || !(*delta >= 0 && *delta <= 0.5))
    return Error{Errc::invalid_argument,
                 fmt::format("DERATE_DELTA '{}': allowed is a number in [0, 0.5] or one of {}",
                             shown(text), job_class_names())};
  return AskedLoss{Fraction(*delta), false};
}

const JobRule* matching_rule(const ProcessFacts& process, std::span<const JobRule> rules) {
  const JobRule* perhaps = nullptr;
  for (const JobRule& rule : rules) {
    if (rule.nobody) continue;
    if (rule.uid && rule.uid != process.uid) continue;
    if (!rule.process.empty() && ::fnmatch(rule.process.c_str(), process.name.c_str(), 0) != 0)
      continue;
    if (!rule.unknown) return perhaps != nullptr && perhaps->delta < rule.delta ? perhaps : &rule;
    if (perhaps == nullptr || rule.delta < perhaps->delta) perhaps = &rule;
  }
  // Whether it holds is not known: the policy's own promise may be the stricter.
  return nullptr;
}

std::optional<Promise> promise_of(const ProcessFacts& process, std::optional<Fraction> from_beat,
                                  const PromiseRules& rules) {
  std::optional<Promise> out;
  const JobRule* rule = matching_rule(process, rules.rules);
  if (rule != nullptr) out = Promise{rule->delta, rule->every_phase, rule->name};
  std::optional<Promise> own;
  if (!process.asked.empty())
    if (const auto asked = parse_asked_loss(process.asked); asked.ok())
      own = Promise{asked->delta, asked->every_phase, "DERATE_DELTA"};
  if (from_beat && (!own || *from_beat < own->max_loss))
    own = Promise{*from_beat, own && own->every_phase, "beat"};
  if (own) {
    // A rule that looks at each phase goes on doing so.
    own->every_phase = own->every_phase || (out && out->every_phase);
    out = std::move(own);
  }
  if (out) out->max_loss = std::clamp(out->max_loss, Fraction(0), rules.max_delta);
  return out;
}

std::optional<Promise> strictest(std::span<const std::optional<Promise>> tenants,
                                 std::optional<Fraction> policy_delta) {
  std::optional<Promise> out;
  bool some_without = false, every_phase = false;
  for (const auto& one : tenants) {
    some_without = some_without || !one;
    if (!one) continue;
    every_phase = every_phase || one->every_phase;
    // Of equal ones the first by name, so that their order does not matter.
    if (!out || one->max_loss < out->max_loss ||
        (one->max_loss == out->max_loss && one->from < out->from))
      out = one;
  }
  if (!out) return out;
  if (some_without && policy_delta && *policy_delta < out->max_loss)
    out = Promise{*policy_delta, false, "policy"};
  out->every_phase = every_phase;
  return out;
}

}  // namespace derate
