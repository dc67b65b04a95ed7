// A policy turns an Estimate into a Decision. It never sees a device, a clock or a file.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/capability.h"
#include "core/decision.h"
#include "core/envelope.h"
#include "core/estimate.h"
#include "core/forecast.h"
#include "core/model_cache.h"
#include "core/param_spec.h"
#include "core/saving.h"
#include "policy/work_account.h"

namespace derate {

class Policy {
 public:
  virtual ~Policy() = default;
  // Called once a tick. `envelope` is what is allowed now; it may be narrower than at creation.
  virtual Decision decide(const Estimate& estimate, const Envelope& envelope) = 0;
  // The fields that it reads, and how old they may be: the sampler reads them as often as that. The
  // list is the same for the life of the policy.
  virtual std::span<const FieldNeed> needs() const { return {}; }
  // What comes next is work that the policy has not seen the beginning of: the GPU was governed by
  // another one meanwhile, or this one governed others. For policies that hold a clock because they
  // know what they asked for.
  virtual void begin_anew() {}
  // Of all work so far, as it is believed now; empty for a policy that has no curves to tell it by.
  virtual std::optional<Saving> saving() const { return std::nullopt; }
  // Of the work as it is known now, by the envelope's clocks upwards; none where that is not known,
  // or by a policy that has no curves.
  virtual std::vector<ForecastPoint> forecast(const Envelope& /*envelope*/) const { return {}; }
  // The clock at which it would come to rest under another delta; where nothing is known empty.
  virtual std::optional<Megahertz> would_hold(double /*delta*/,
                                              const Envelope& /*envelope*/) const {
    return std::nullopt;
  }
};

// One for each delta: the points at which the policy would come to rest.
std::vector<Forecast> forecasts(const Policy& policy, std::span<const double> deltas,
                                const Envelope& envelope);

// What a policy is made from.
struct PolicySetup {
  Envelope envelope;          // the administrator's
  Megahertz efficient_clock;  // the end of the chip's flat-voltage region, within the envelope
  ParamValues params;         // defaults filled in
  std::optional<PowerLimits> power_limits = {};  // empty: the driver lets nobody set the limit
  std::string chip = {};         // "V100-SXM2", as in core/chip_facts.h; empty: not known
  ModelCache* models = nullptr;  // outlives the policy; null: nothing is kept from job to job
  bool dry_run = false;          // what it asks for is not done: it tells what would be saved
  // Of the work that the policy will govern. It may be another policy's as well, of another domain
  // of that work, which then counts under another number.
  std::shared_ptr<WorkAccount> account = std::make_shared<WorkAccount>();
  std::size_t domain = 0;
};

// One row of the registry: it drives `derate policy list|show`, help, config checks and docs.
struct PolicyInfo {
  const char* name;
  const char* summary;      // one line
  const char* description;  // a few sentences: what it does, where it comes from
  // Run as its authors ran it: the governor's idle, rate-limit and drift rules are off; envelope,
  // thermal rule and restore stay.
  bool as_published;
  std::span<const ParamSpec> params;
  Result<std::unique_ptr<Policy>> (*create)(const PolicySetup& setup);
  // Whether `delta`, where it is a parameter, bounds the loss of all work; no_loss: it runs at the
  // highest clocks there are.
  enum class Promise { delta, none, no_loss };
  Promise promise = Promise::delta;
  // What it takes for progress: counters alone, or what the work tells of itself, where it does.
  bool hears_beats = false;
};

}  // namespace derate
