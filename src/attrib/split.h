// A method that splits a GPU's power among its tenants, and the one table of methods. A method only
// estimates watts; allocate_energy() (attrib/allocate_energy.h) makes energies of them that add up
// to the counter.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attrib/tick.h"
#include "base/result.h"

namespace derate {

// An estimate with more of `prior_share` left is still the prior's: an assumption, not a
// measurement.
inline constexpr Fraction kMostlyPrior{0.5};

// Where more than that of the tenants' power is `unexplained`, somebody draws what is not shown
// (docs/attribute.md has what was seen of others).
inline constexpr Fraction kMuchUnexplained{0.15};

struct TenantEstimate {
  Watts dynamic{};  // what its activity draws; never negative
  // One standard deviation of `dynamic` after it was scaled to the board's energy. Empty: the
  // method does not say how sure it is.
  std::optional<Watts> sigma;
  // How much of the uncertainty before anything was seen is left, 0..1 (kMostlyPrior). Empty: the
  // method learns nothing.
  std::optional<Fraction> prior_share;
  // W while it has the GPU, at the highest clock. Empty: the method does not find that out.
  std::optional<Belief> working_w;
  // The same as prior_share, of working_w.
  std::optional<Fraction> working_prior;
};

struct PowerEstimate {
  Watts base{};     // of the board with no context
  Watts context{};  // more of it as soon as anyone holds a context; drawn only then
  std::vector<TenantEstimate> tenants;  // as the tick has them
  // The part of what the estimate does not explain that is noise of the sensor and so nobody's: the
  // base bears it, as far as it has watts to bear it with. The rest goes to the tenants.
  Fraction residual_to_base{0};
  // How much of what the tenants drew of late no counter foretold, 0..1 (kMuchUnexplained). Empty:
  // the method foretells nothing, or too little was seen.
  std::optional<Fraction> unexplained;
};

class SplitMethod {
 public:
  virtual ~SplitMethod() = default;
  // Ticks come in order of time. One without energy is estimated and not learned from.
  virtual PowerEstimate step(const AttribTick& tick) = 0;
};

// What a method may be told of the board beforehand. What is empty, it has to find out.
struct BoardFacts {
  std::string chip;  // core/chip_facts.h
  std::optional<Watts> base, context;
  std::optional<Megahertz> highest_clock;
  int slices = 7;
};

struct SplitMethodInfo {
  const char* name;
  const char* summary;
  bool needs_training;  // on runs made beforehand: only the lab has them (attrib/training.h)
  std::unique_ptr<SplitMethod> (*make)(const BoardFacts& board);  // null where it needs training
};

// Every method, the default first.
std::span<const SplitMethodInfo> split_methods();

// Errors: not_found naming the methods there are.
Result<const SplitMethodInfo*> find_split_method(std::string_view name);

}  // namespace derate
