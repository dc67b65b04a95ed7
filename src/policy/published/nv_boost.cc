// nv-boost: leaves the clock to the GPU.
#include "policy/published/published.h"

namespace derate {
namespace {

class NvBoost final : public Policy {
 public:
  Decision decide(const Estimate&, const Envelope&) override {
    Decision decision = Decision::release({"the GPU's own clock control", {}});
    decision.expected_performance = Fraction(1);
    return decision;
  }
};

}  // namespace

PolicyInfo nv_boost_info() {
  return {"nv-boost",
          "leave the clock to the GPU: what happens without Derate",
          "Sets nothing; a lock that this governor holds is released. NVboost of the GEEPAFS paper "
          "(EuroSys'24).",
          true,
          {},
          [](const PolicySetup&) -> Result<std::unique_ptr<Policy>> {
            return std::make_unique<NvBoost>();
          },
          PolicyInfo::Promise::no_loss};
}

}  // namespace derate
