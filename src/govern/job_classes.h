// The promise to each tenant of a GPU: from the configuration's rules by user and program, from
// DERATE_DELTA, or from the application's beats. The strictest tenant counts. No I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/gpu_process.h"
#include "core/promise.h"

namespace derate {

// A rule holds for a process that matches all that it names.
struct JobRule {
  std::string name;
  std::optional<std::uint32_t> uid;  // empty: any user
  bool nobody = false;               // names a user that this machine does not have
  bool unknown = false;              // names a user that has not been looked up yet
  std::string process;               // a glob for its name, in letters of any case; empty: any
  Fraction delta{0};
  bool every_phase = false;
};

struct PromiseRules {
  std::vector<JobRule> rules;  // the first that matches holds
  Fraction max_delta{0.3};     // nobody may ask for more loss
};

// What DERATE_DELTA asks for: a number in [0, 0.5] or a class.
// Errors: invalid_argument, naming the value and what is allowed. The value is another's: of it at
// most 32 printing bytes are shown.
struct AskedLoss {
  Fraction delta{0};
  bool every_phase = false;
};
Result<AskedLoss> parse_asked_loss(std::string_view text);

// Whether the program's name matches the pattern, in letters of any case: vLLM's worker is called
// VLLM::EngineCore, and a rule for "vllm*" is meant for it.
bool matches_program(const std::string& glob, const std::string& name);

// Whether the process has all that the rule names, or may have, while its user is not known.
bool may_match(const JobRule& rule, const ProcessFacts& process);

// The rule that holds for the process; null: none. A rule that may turn out to be of its user holds
// while it is stricter than the first that is sure to match.
const JobRule* matching_rule(const ProcessFacts& process, std::span<const JobRule> rules);

// What one process was promised; empty: nothing but the policy's own delta. `from_beat`: what its
// beats ask for. Its own word, the stricter of both, comes before the rule's; never more than
// max_delta.
std::optional<Promise> promise_of(const ProcessFacts& process, std::optional<Fraction> from_beat,
                                  const PromiseRules& rules);

// Of all tenants of a GPU, in any order: each promise once, the strictest first. A tenant without
// one has the policy's own delta, which is another promise where it is stricter than all of them.
// Empty: no tenant was promised anything.
std::vector<Promise> promises_to(std::span<const std::optional<Promise>> tenants,
                                 std::optional<Fraction> policy_delta);

}  // namespace derate
