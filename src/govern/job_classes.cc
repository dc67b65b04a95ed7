#include "govern/job_classes.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <tuple>

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

bool matches_program(const std::string& glob, const std::string& name) {
  return ::fnmatch(glob.c_str(), name.c_str(), FNM_CASEFOLD) == 0;
}

bool may_match(const JobRule& rule, const ProcessFacts& process) {
  if (rule.nobody || (rule.uid && rule.uid != process.uid)) return false;
  return rule.process.empty() || matches_program(rule.process, process.name);
}

const JobRule* matching_rule(const ProcessFacts& process, std::span<const JobRule> rules) {
  const JobRule* perhaps = nullptr;
  for (const JobRule& rule : rules) {
    if (!may_match(rule, process)) continue;
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
  if (rule != nullptr) out = throughput(rule->delta, rule->name, rule->every_phase);
  std::optional<Promise> own;
  if (!process.asked.empty())
    if (const auto asked = parse_asked_loss(process.asked); asked.ok())
      own = throughput(asked->delta, "DERATE_DELTA", asked->every_phase);
  if (from_beat && (!own || *from_beat < max_loss(*own)))
    own = throughput(*from_beat, "beat", own && own->every_phase);
  if (own) {
    // A rule that looks at each phase goes on doing so.
    own->every_phase = own->every_phase || (out && out->every_phase);
    out = std::move(own);
  }
  if (!out) return out;
  out->values[0] = std::clamp(max_loss(*out), Fraction(0), rules.max_delta).value();
  if (process.uid) out->owner = fmt::format("uid:{}", *process.uid);
  return out;
}

std::vector<Promise> promises_to(std::span<const std::optional<Promise>> tenants,
                                 std::optional<Fraction> policy_delta) {
  std::vector<Promise> out;
  for (const auto& one : tenants)
    if (one) out.push_back(*one);
  const bool some_without = out.size() < tenants.size();
  const auto key = [](const Promise& of) {
    return std::tie(of.values, of.origin, of.owner, of.every_phase);
  };
  std::sort(out.begin(), out.end(),
            [&](const Promise& a, const Promise& b) { return key(a) < key(b); });
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (!out.empty() && some_without && policy_delta && *policy_delta < max_loss(out.front()))
    out.insert(out.begin(), throughput(*policy_delta, "policy"));
  return out;
}

}  // namespace derate
