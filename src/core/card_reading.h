// A card's memory, link, fan, video engines and errors. Derate shows them; no policy uses them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/shared_value.h"
#include "base/units.h"

namespace derate {

// An error that the driver reports by a number ("Xid 79").
struct Xid {
  int number = 0;
  WallTime seen{};  // when Derate read it

  bool operator==(const Xid&) const = default;
};

struct XidCount {
  std::uint64_t count = 0;
  std::optional<Xid> last;

  bool operator==(const XidCount&) const = default;
};

// Xid errors since the GPU was opened. An error of the card is often followed by one of a program,
// whose work the driver ends (48, then 45): the two are counted apart, so that none hides the
// other.
struct XidLog {
  XidCount card;      // of the card, its slot or the driver
  XidCount programs;  // that programs make by their own mistakes

  bool operator==(const XidLog&) const = default;
};

struct CardReading {
  Instant taken{};
  std::optional<double> memory_used_bytes, memory_total_bytes;
  // Of the link now, which is slower while the GPU is idle, and of what card and slot allow.
  std::optional<int> pcie_generation, pcie_lanes, pcie_most_generation, pcie_most_lanes;
  std::optional<Fraction> fan;  // of its highest speed
  std::optional<Fraction> encoder, decoder;
  std::optional<std::uint64_t> ecc_corrected, ecc_uncorrected;  // since the driver was loaded
  std::optional<XidLog> xids;  // empty where the driver does not report them

  bool operator==(const CardReading&) const = default;
};
using SharedCard = SharedValue<CardReading>;

// The last one of the card; without one, the last of a program; empty without any.
std::optional<Xid> gravest(const XidLog& log);

// In a few words what NVIDIA's list of Xid errors says of that number ("the GPU has fallen off the
// bus"); empty for a number that is not in our table. Source: docs.nvidia.com/deploy/xid-errors.
std::string xid_text(int number);
// "Xid 79 (the GPU has fallen off the bus)".
std::string xid_name(int number);
// Whether an application causes it by its own mistakes, as that list says. Others concern the card,
// its driver or its slot.
bool is_of_application(int number);

}  // namespace derate
