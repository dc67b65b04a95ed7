// The choice of a governor by options and configuration: settings, policy, envelopes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "config/config_files.h"
#include "config/settings.h"
#include "core/capability.h"
#include "govern/envelope_rule.h"
#include "govern/governor.h"
#include "govern/model_cache_provider.h"
#include "policy/policy.h"
#include "policy/policy_options.h"

namespace derate {

// The settings in force: those of config_source() (config/config_files.h), else the defaults;
// parameters of policies are checked against the registry.
// Errors: bad_config with FILE:LINE:COLUMN; not_found for a named file that is not there.
Result<Settings> load_settings(const std::string& file);
// The same of files that are read. Errors: bad_config.
Result<Settings> settings_of(std::span<const ConfigFile> files);

// Errors: bad_config naming the place.
Result<void> check_policy_settings(const Settings& settings);

struct ChosenPolicy {
  const PolicyInfo* info = nullptr;
  ParamValues params;
  bool operator==(const ChosenPolicy&) const = default;
};

// The command line's policy and parameters over the configuration's.
Result<ChosenPolicy> choose_policy(const PolicyOptions& options, const Settings& settings);

// The clocks that the settings allow on the GPU. Errors: those of make_envelope(), with the UUID.
Result<Envelope> clock_envelope(const Capability& capability, const Settings& settings);

// The clock lock that the configuration names as found on a GPU, in clocks that its driver accepts;
// empty: none is named. Errors: invalid_argument for a clock outside the supported ones, which
// could not be restored.
Result<std::optional<KnobValue>> found_lock(const Capability& capability, const Settings& settings);
// Sentences: the configured clocks that lie between two of the GPU's, and the clocks that replace
// them.
std::vector<std::string> clocks_between_steps(const Capability& capability,
                                              const Settings& settings);

DriftRule drift_rule(const Settings& settings);

// A governed GPU; `control` null for a dry run. `models` outlives it; null: nothing is kept from
// job to job. Errors: those of the envelope and the policy.
Result<GovernedGpu> govern_gpu(TelemetrySource& source, ClockControl* control,
                               const ChosenPolicy& policy, const Settings& settings,
                               ModelCacheProvider* models = nullptr);

GovernorOptions governor_options(const Settings& settings);

// The promise: 1 - delta where the policy has one; empty where it promises nothing.
std::optional<double> promised_performance(const ChosenPolicy& policy);
// The same for this work: what its tenants were promised comes before the policy's own delta, but
// where a policy is run as published.
std::optional<double> promised_performance(const ChosenPolicy& policy, const WorkStatus& work);
// The most performance that the policy may lose; 1: it bounds no loss.
double most_loss(const ChosenPolicy& policy);
// 1 - (1 - 0.3) is a little more than 0.3.
inline constexpr double kLossRounding = 1e-9;
// The policy's own delta; empty where it promises nothing.
std::optional<Fraction> policy_delta(const ChosenPolicy& policy);

}  // namespace derate
