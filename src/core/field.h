// The fields of a sample, grouped by the call that reads them: the time of each reading, the last
// time at which its value changed, and its reader. A policy that needs a field states how fresh it
// has to be.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/units.h"

namespace derate {

enum class Field : std::uint8_t {
  utilisation,  // of GPU and memory
  sm_clock,
  memory_clock,
  power_usage,
  power_instant,
  power_average,
  energy,
  temperature,
  throttle_reasons,
  activity,  // all of its shares
  tenants,
};
inline constexpr std::size_t kFields = 11;

// A field that was not read by its sample's source, or not at the sample's time.
struct FieldRead {
  Field field{};
  Instant taken{};
  std::string_view source = {};  // as in FieldOrigin

  bool operator==(const FieldRead&) const = default;
};

struct FieldOrigin {
  Instant taken{};               // when it was last read, on the governor's clock
  Instant renewed{};             // when what was read was last another value, as far as is known
  std::string_view source = {};  // "nvml", "gpm", "simulated", "replayed", ...; outlives all of it

  bool operator==(const FieldOrigin&) const = default;
};

// By field; empty: it was never read.
class FieldOrigins {
 public:
  std::optional<FieldOrigin>& operator[](Field field) {
    return all_[static_cast<std::size_t>(field)];
  }
  const std::optional<FieldOrigin>& operator[](Field field) const {
    return all_[static_cast<std::size_t>(field)];
  }
  // Empty: never read.
  std::optional<Duration> age(Field field, Instant now) const {
    const auto& origin = (*this)[field];
    return origin ? std::optional(now - origin->taken) : std::nullopt;
  }
  bool operator==(const FieldOrigins&) const = default;

 private:
  std::array<std::optional<FieldOrigin>, kFields> all_;
};

// A field that somebody needs, read no longer ago than `within`; without it, as it comes.
struct FieldNeed {
  Field field{};
  Duration within = Duration::max();
};

}  // namespace derate
