// sweet-spot: another policy, and a cap on the clock of a GPU that several processes share.
#include "policy/published/published.h"

#include <iterator>
#include <utility>

#include "base/check.h"
#include "policy/simple_policies.h"

namespace derate {
namespace {

// The policies that may decide while the cap is off, and their rows in the same order.
constexpr const char* kDelegates[] = {"geepafs", "max-freq", "efficient-fix", "nv-boost",
                                      "utiliz-scale"};
const PolicyInfo kDelegateInfos[] = {geepafs_info(), max_freq_info(), efficient_fix_info(),
                                     nv_boost_info(), utiliz_scale_info()};
static_assert(std::size(kDelegates) == std::size(kDelegateInfos));

constexpr ParamSpec kSweetSpotParams[] = {
    {"cap", ParamSpec::Type::number, "", "share of the highest clock at which shared work is held",
     "0.7", 0, 1, false},
    {"utilisation", ParamSpec::Type::number, "", "GPU utilisation above which a shared GPU is held",
     "0.9", 0, 1},
    {"dwell", ParamSpec::Type::number, "s",
     "how long the conditions must hold before the cap comes, and fail before it goes", "5", 0,
     3600},
    {"delegate", ParamSpec::Type::choice, "", "the policy that decides while the cap is off",
     "geepafs", 0, 0, true, kDelegates},
    {"delta", ParamSpec::Type::number, "",
     "the delegate's own, where it has one; the cap bounds no loss", "0.10", 0, 0.5, false},
};

// Both assumed: once capped a GPU counts as busy down to so much less, so that a reading that
// wavers at the threshold does not end the cap; a count older than that says nothing any more.
constexpr Fraction kBand{0.1};
constexpr Duration kForgetSpeedAfter = std::chrono::seconds(10);

class SweetSpot final : public Policy {
 public:
  struct Plan {
    PolicySetup delegate;
    const PolicyInfo* delegate_info = nullptr;
    Megahertz cap{};  // before rounding up
    Fraction busy_above{};
    Duration dwell{};
  };
  SweetSpot(Plan plan, std::unique_ptr<Policy> delegate)
      : plan_(std::move(plan)), delegate_(std::move(delegate)) {}

  std::span<const FieldNeed> needs() const override { return kNeeds; }
  Decision decide(const Estimate& estimate, const Envelope& envelope) override {
    count(estimate);
    judge(estimate);
    if (!capped_) return delegate_->decide(estimate, envelope);
    const Megahertz clock = envelope.clamp(plan_.cap);
    return Decision::set(clock, {"{1:.0f} tenants keep the GPU busy: held at {0:.0f} MHz",
                                 {clock.value(), static_cast<double>(tenants_.value_or(0))}});
  }

 private:
  // Its own and those of its delegates.
  static constexpr FieldNeed kNeeds[] = {{Field::tenants, kForgetSpeedAfter},
                                         {Field::utilisation},
                                         {Field::sm_clock},
                                         {Field::power_usage}};

  // Tenants are counted in few ticks only.
  void count(const Estimate& estimate) {
    const auto age = estimate.origins.age(Field::tenants, estimate.time);
    if (estimate.tenants)
      tenants_ = estimate.tenants;
    else if (!age || *age > kForgetSpeedAfter)
      tenants_.reset();
  }

  // The cap comes and goes when the conditions have disagreed with it for `dwell` on end.
  void judge(const Estimate& estimate) {
    if (!estimate.gpu_utilisation) return;
    const Fraction threshold = capped_ ? plan_.busy_above - kBand : plan_.busy_above;
    const bool wanted = tenants_.value_or(0) > 1 && *estimate.gpu_utilisation > threshold;
    if (wanted == capped_) {
      disagree_since_.reset();
      return;
    }
    if (!disagree_since_) disagree_since_ = estimate.time;
    if (estimate.time - *disagree_since_ < plan_.dwell) return;
    capped_ = wanted;
    disagree_since_.reset();
    if (!capped_) start_over();
  }

  // What the delegate learned before the cap was of other tenants.
  void start_over() {
    auto made = plan_.delegate_info->create(plan_.delegate);
    CHECK(made.ok());  // as at the start
    delegate_ = *std::move(made);
  }

  Plan plan_;
  std::unique_ptr<Policy> delegate_;
  std::optional<int> tenants_;
  bool capped_ = false;
  std::optional<Instant> disagree_since_;
};

Result<std::unique_ptr<Policy>> create_sweet_spot(const PolicySetup& setup) {
  const auto place = static_cast<std::size_t>(*setup.params.number("delegate"));
  SweetSpot::Plan plan{.delegate = setup};
  plan.delegate_info = &kDelegateInfos[place];
  plan.delegate.params = default_params(plan.delegate_info->params);
  if (plan.delegate.params.number("delta"))
    plan.delegate.params.set("delta", {*setup.params.number("delta")});
  plan.cap = setup.envelope.highest() * *setup.params.number("cap");
  plan.busy_above = Fraction(*setup.params.number("utilisation"));
  plan.dwell = from_seconds(*setup.params.number("dwell"));
  auto delegate = TRY(plan.delegate_info->create(plan.delegate));
  return std::make_unique<SweetSpot>(std::move(plan), std::move(delegate));
}

}  // namespace

PolicyInfo sweet_spot_info() {
  return {
      "sweet-spot",
      "hold a busy GPU that several processes share at 0.7 of its clock, else delegate",
      "With more than one process on a GPU that is over 90 % busy the SM clock is held at a share "
      "of "
      "the highest; otherwise another policy decides. SweetSpot of a GEEPAFS fork for an RTX 4070 "
      "Laptop, whose source is not published: the condition and the share are its, the hysteresis "
      "is ours. It runs as the published policies that it delegates to: the rate-limit rule would "
      "put off their probes.",
      true,
      kSweetSpotParams,
      create_sweet_spot,
      PolicyInfo::Promise::none};
}

}  // namespace derate
