// Heartbeat messages, in which an application reports its progress, phase and promise as one line
// of text: parser and formatter (docs/heartbeats.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/units.h"
#include "core/progress.h"

namespace derate {

struct BeatMessage {
  std::optional<double> done;        // work since its beginning, in the application's own unit
  std::string phase;                 // empty: it names none
  std::optional<Fraction> max_loss;  // a promise that it asks for
  std::string gpu;                   // index, UUID or PCI bus id; empty: where its process works
  std::int64_t pid = 0;              // the process that the count is of; 0: the sender
  // What its environment says, for a daemon that may not read that (docs/heartbeats.md).
  std::string asked = {};  // DERATE_DELTA: a word of at most kLongestAsked bytes, good or not
  std::string job = {};    // the number of its batch job

  // Of how its work goes, not only of what its environment says.
  bool is_beat() const { return done || !phase.empty() || max_loss; }

  bool operator==(const BeatMessage&) const = default;
};

inline constexpr std::size_t kLongestBeat = 512;
inline constexpr std::size_t kLongestPhase = 63;
inline constexpr std::size_t kLongestAsked = 32;
inline constexpr double kMostDone = 1e18;

// Errors: invalid_argument, naming the field and what is allowed.
Result<BeatMessage> parse_beat(std::string_view line);

// As parse_beat() reads it.
std::string format_beat(const BeatMessage& message);

// Of a message that has `done`.
Progress progress_of(const BeatMessage& message, Instant time);

}  // namespace derate
