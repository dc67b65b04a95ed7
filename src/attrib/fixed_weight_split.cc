#include "attrib/fixed_weight_split.h"

#include <cmath>
#include <utility>

#include "attrib/features.h"

namespace derate {
namespace {

class ToldSplit final : public SplitMethod {
 public:
  ToldSplit(const BoardFacts& board, TenantWeight weight)
      : base_(board.base.value_or(Watts(0))),
        context_(board.context.value_or(Watts(0))),
        weight_(std::move(weight)) {}

  PowerEstimate step(const AttribTick& tick) override {
    PowerEstimate out{.base = base_, .context = context_};
    for (const TenantTick& tenant : tick.tenants) {
      const double weight = is_present(tenant) ? weight_(tenant, tick) : 0;
      out.tenants.push_back({.dynamic = Watts(std::isfinite(weight) && weight > 0 ? weight : 0)});
    }
    return out;
  }

 private:
  Watts base_, context_;
  TenantWeight weight_;
};

}  // namespace

std::unique_ptr<SplitMethod> make_fixed_weight_split(const BoardFacts& board, TenantWeight weight) {
  return std::make_unique<ToldSplit>(board, std::move(weight));
}

}  // namespace derate
