// Energy accounts of one GPU: the energy that each tenant and the board have used, as splits added
// up, in whole millijoules.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "attrib/allocate_energy.h"

namespace derate {

// Energies that add up: of a tenant, over some time. All in mJ, none negative.
struct TenantSums {
  std::int64_t base_mj = 0, context_mj = 0, dynamic_mj = 0;
  // One standard deviation. The errors of consecutive ticks of a tenant come from the same wrong
  // watts, so they are taken for fully correlated: deviations add up, not their squares.
  std::int64_t sigma_mj = 0;
  // Dynamic energy of the ticks whose method did not say how sure it is.
  std::int64_t unsure_mj = 0;
  // Dynamic energy of the ticks whose estimate was still the prior's (kMostlyPrior).
  std::int64_t prior_mj = 0;
  Duration time{};  // that the tenant was there

  std::int64_t total_mj() const { return base_mj + context_mj + dynamic_mj; }
  // How far off the total may be, one standard deviation; energy of which nothing is known counts
  // as wholly unsure. Empty where the method never said.
  std::optional<std::int64_t> deviation_mj() const;
  // How much of it is assumption; empty where the method never said, as deviation_mj().
  std::optional<std::int64_t> known_prior_mj() const;
  void add(const TenantSums& more);

  bool operator==(const TenantSums&) const = default;
};
TenantSums sums_of(const TenantEnergy& energy, Duration length);

// Of the whole board.
struct BoardSums {
  std::int64_t board_mj = 0, unallocated_mj = 0;
  std::int64_t by_power_mj = 0;  // of the board's, what no counter measured
  Duration time{};               // that `board_mj` is of
  Duration lost{};               // of ticks whose energy cannot be told

  void add(const BoardSums& more);

  bool operator==(const BoardSums&) const = default;
};

struct TenantAccount {
  TenantSums sums;
  TenantEnergy newest;  // of the last tick in which it was there
  Duration newest_length{};
  Instant seen{};
};

class EnergyAccounts {
 public:
  // More tenants than that are not kept open: who was not seen for longest is closed first.
  static constexpr std::size_t kMostOpen = 4096;

  // `now`: the tick's end.
  void add(const Split& split, Instant now, bool by_power = false);
  // A tick without energy.
  void add_lost(Duration length) { board_.lost += length; }

  // Since the beginning. Board = unallocated + open accounts + closed, exactly.
  const BoardSums& board() const { return board_; }
  const std::map<std::string, TenantAccount>& open() const { return open_; }
  // The energy of all accounts that were closed.
  std::int64_t closed_mj() const { return closed_mj_; }

  // Closes and hands over the accounts of those who were not seen since `before`.
  std::vector<std::pair<std::string, TenantAccount>> close_unseen(Instant before);

 private:
  BoardSums board_;
  std::map<std::string, TenantAccount> open_;
  std::int64_t closed_mj_ = 0;
};

}  // namespace derate
