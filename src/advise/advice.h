// Advice on a GPU's work: the catalogue of findings (what slows the work or wastes power, and
// settings to try), and the findings that each GPU's evidence supports. docs/advise.md has the
// rules and how often they are right.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "advise/work_evidence.h"

namespace derate {

enum class Finding : std::uint8_t {
  heat,
  power_limit,
  idle_context,
  idle_clock,
  checkpoint,
  transfers,
  data_loader,
  host,
  waiting,  // one of the four before, where no counter tells which
  launches,
  small_kernels,
  occupancy,
  underused,  // one of the three before, likewise
  memory,
  tensor_idle,
  imbalance,
};

struct FindingInfo {
  Finding finding;
  const char* name;                    // as in JSON: "memory_bound"
  const char* title;                   // a sentence
  const char* needs;                   // the sensors that tell it
  std::span<const char* const> tries;  // settings and tools, the first first
  const char* page;                    // where a vendor says more
};
std::span<const FindingInfo> finding_catalogue();
const FindingInfo& info_of(Finding finding);
// The tries of a finding on a GPU that `policy` governs, without the advice to set that policy.
// An empty policy: nobody governs the GPU.
std::vector<std::string> tries_under(std::string_view policy, Finding finding);

// sure: the figures are far from any other reading of them; likely: the first guess of an expert.
enum class Certainty : std::uint8_t { likely, sure };
const char* to_string(Certainty certainty);

struct Advice {
  Finding finding{};
  Certainty certainty{};
  Fraction lost;         // of the time, or of the power where nothing runs; an upper bound of what
                         // can be won
  std::string evidence;  // a sentence with figures
  std::string effect;    // what to expect, as a sentence
};

// What costs less than that is not worth a word.
inline constexpr Fraction kLeastLost{0.08};

// The dearest first; empty: nothing to advise.
std::vector<Advice> advise(const WorkEvidence& evidence);
// Of one job's GPUs, with what unevenness() says of them; empty: they are in step, or it is not
// known.
std::optional<Advice> advise_of_imbalance(std::span<const WorkEvidence> gpus,
                                          std::optional<Fraction> unevenness);
// Where GPUs wait for each other: what is said of one of them because it waits goes.
void drop_what_imbalance_explains(std::vector<Advice>& of_one);

}  // namespace derate
