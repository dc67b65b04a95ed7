// max-freq: locks the highest allowed clock.
#include "policy/simple_policies.h"

namespace derate {
namespace {

class MaxFreq final : public Policy {
 public:
  Decision decide(const Estimate&, const Envelope& envelope) override {
    Decision decision = Decision::set(envelope.highest(), {"the highest allowed clock, {0:.0f} MHz",
                                                           {envelope.highest().value()}});
    decision.expected_performance = Fraction(1);
    return decision;
  }
};

}  // namespace

PolicyInfo max_freq_info() {
  return {
      "max-freq",
      "lock the highest allowed clock: the baseline of every figure",
      "Locks the SM clock at the envelope's maximum. Loss and savings of all other policies are "
      "measured against it. MaxFreq of the GEEPAFS paper (EuroSys'24).",
      true,
      {},
      [](const PolicySetup&) -> Result<std::unique_ptr<Policy>> {
        return std::make_unique<MaxFreq>();
      },
      PolicyInfo::Promise::no_loss};
}

}  // namespace derate
