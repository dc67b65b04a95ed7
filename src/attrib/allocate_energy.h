// The step from estimated watts to energies in whole millijoules that add up to the counter's step
// exactly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attrib/split.h"
#include "attrib/tick.h"
#include "base/result.h"

namespace derate {

// Which tenants the base energy, which no activity draws, is charged to. The context step is always
// shared equally by those who hold a context: that is its Shapley value.
enum class IdleRule : std::uint8_t {
  unallocated,  // the base stays with nobody (the default)
  by_slice,     // each tenant bears the base of its slices; slices in no instance stay unallocated
  equal,        // the tenants with a context share the base equally
};
const char* to_string(IdleRule rule);
// Errors: invalid_argument naming the rules.
Result<IdleRule> parse_idle_rule(std::string_view name);

struct TenantEnergy {
  std::string key;
  SignalKind signal = SignalKind::allocation;
  std::int64_t base_mj = 0, context_mj = 0, dynamic_mj = 0;  // none negative
  std::optional<std::int64_t> sigma_mj;                      // of the sum, one standard deviation
  std::optional<Fraction> prior_share;

  std::int64_t total_mj() const { return base_mj + context_mj + dynamic_mj; }
};

struct Split {
  Duration length{};
  std::int64_t board_mj = 0;        // what was split
  std::int64_t unallocated_mj = 0;  // borne by nobody
  std::vector<TenantEnergy> tenants;
  std::optional<Fraction> unexplained;  // as PowerEstimate has it
};

// unallocated + all tenants = board, exactly, and nothing is negative. What the estimate does not
// explain of the energy goes to the base as far as the estimate says so, else in proportion to the
// dynamic power; without any to those who hold a context, equally; without those to nobody. Empty
// when the tick has no energy to split.
std::optional<Split> allocate_energy(const AttribTick& tick, const PowerEstimate& estimate,
                                     IdleRule rule);

// Whole parts of `total` in proportion to `weights` by largest remainder; all to the first where no
// weight is positive. Sum: total. `weights` not empty, those that are no positive number count as
// 0.
std::vector<std::int64_t> apportion(std::int64_t total, const std::vector<double>& weights);

}  // namespace derate
