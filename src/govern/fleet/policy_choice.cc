#include "govern/fleet/policy_choice.h"

#include <fmt/format.h>

#include <utility>

#include "attrib/gpu_attribution.h"
#include "base/text.h"
#include "config/config.h"
#include "core/gpu_selection.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"

namespace derate {

namespace {

// "FILE:LINE:COLUMN: "; what is wrong was said somewhere.
Error wrong_setting(const Settings& settings, const char* key, const Error& error) {
  const std::string where = where_of(settings, key);
  return {Errc::bad_config,
          fmt::format("{}{}{}: {}", where, where.empty() ? "" : ": ", key, error.message)};
}

Result<void> check_attribution_settings(const Settings& settings) {
  const auto rules = attribution_rules(settings.attribute_method, settings.idle_rule);
  if (rules.ok()) return {};
  const bool of_method = attribution_rules(settings.attribute_method, Settings{}.idle_rule).ok();
  return wrong_setting(settings, of_method ? "attribute.idle_rule" : "attribute.method",
                       rules.error());
}

// A name that Kubernetes does not allow would match no pod.
Result<void> check_kubernetes_settings(const KubernetesSettings& kubernetes,
                                       const Settings& settings) {
  const auto wrong = [&](const char* key, const std::string& text, const char* allowed) {
    return wrong_setting(settings, key,
                         {Errc::bad_config, fmt::format("'{}': allowed is {}", text, allowed)});
  };
  if (!is_dns_subdomain(kubernetes.prefix))
    return wrong("kubernetes.prefix", kubernetes.prefix, "a DNS subdomain, as derate.dev");
  for (const std::string& name : split_names(kubernetes.namespaces))
    if (!is_dns_subdomain(name))
      return wrong("kubernetes.namespaces", name, "the name of a namespace");
  return {};
}

// Rejects texts that cannot name a GPU. The GPUs that are present are not known before they open.
Result<void> check_gpu_settings(const Settings& settings) {
  const auto selection = parse_gpu_selection(settings.gpus);
  if (!selection.ok()) return wrong_setting(settings, "governor.gpus", selection.error());
  for (const GpuName& name : selection->names)
    if (name.kind == GpuName::Kind::mig)
      return wrong_setting(settings, "governor.gpus",
                           {Errc::bad_config, name.text + " is a MIG instance, whose clock is that "
                                                          "of its GPU: name the GPU"});
  return {};
}

}  // namespace

Result<Settings> load_settings(const std::string& file) {
  return settings_of(TRY(read_config_files(config_source(file))));
}

Result<Settings> settings_of(std::span<const ConfigFile> files) {
  Settings settings = TRY(parse_configs(files));
  TRY(check_gpu_settings(settings));
  TRY(check_policy_settings(settings));
  TRY(check_attribution_settings(settings));
  TRY(check_kubernetes_settings(settings.kubernetes, settings));
  return settings;
}

Result<void> check_policy_settings(const Settings& settings) {
  const auto bad = [](const std::string& where, const Error& error) {
    return Error{Errc::bad_config, where + ": " + error.message};
  };
  if (const auto policy = pick_policy(settings.policy); !policy.ok())
    return wrong_setting(settings, "governor.policy", policy.error());
  const std::pair<const char*, const std::string&> lists[] = {
      {"run.policies", settings.run.policies},
      {"scheduler.policies", settings.scheduler.policies},
      {"kubernetes.policies", settings.kubernetes.policies}};
  for (const auto& [key, list] : lists)
    for (const std::string& name : split_names(list))
      if (const auto policy = find_policy(name); !policy.ok())
        return wrong_setting(settings, key, policy.error());
  for (const PolicySetting& setting : settings.policy_settings) {
    const auto info = find_policy(setting.policy);
    if (!info.ok()) return bad(setting.where, info.error());
    const auto spec = find_param((*info)->params, setting.policy, setting.name);
    if (!spec.ok()) return bad(setting.where, spec.error());
    if (const auto value = parse_param(**spec, setting.value); !value.ok())
      return bad(setting.where, value.error());
  }
  return {};
}

Result<ChosenPolicy> choose_policy(const PolicyOptions& options, const Settings& settings) {
  ChosenPolicy out;
  const auto pick = TRY(pick_policy(options.policy.empty() ? settings.policy : options.policy));
  out.info = pick.info;
  std::vector<std::string> assignments;
  for (const PolicySetting& setting : settings.policy_settings)
    if (setting.policy == out.info->name) assignments.push_back(setting.name + "=" + setting.value);
  // A mode means the same everywhere: only the command line comes after it.
  assignments.insert(assignments.end(), pick.assignments.begin(), pick.assignments.end());
  assignments.insert(assignments.end(), options.assignments.begin(), options.assignments.end());
  out.params = TRY(policy_params(*out.info, assignments));
  return out;
}

Result<std::optional<KnobValue>> found_lock(const Capability& capability,
                                            const Settings& settings) {
  if (!settings.found_lowest_mhz || !settings.found_highest_mhz || capability.sm_clocks.empty())
    return std::optional<KnobValue>();
  const auto& clocks = capability.sm_clocks;
  const auto lowest = step_of(clocks, Megahertz(*settings.found_lowest_mhz));
  const auto highest = step_of(clocks, Megahertz(*settings.found_highest_mhz));
  if (lowest && highest) return std::optional(KnobValue{lowest->value(), highest->value()});
  return wrong_setting(
      settings, "found.locked_lowest_mhz",
      {Errc::invalid_argument,
       fmt::format("[found] {:.0f} to {:.0f} MHz: {} has clocks from {:.0f} to {:.0f} MHz, so that "
                   "nothing could restore this lock",
                   *settings.found_lowest_mhz, *settings.found_highest_mhz, capability.id.name,
                   clocks.front().value(), clocks.back().value())});
}

std::vector<std::string> clocks_between_steps(const Capability& capability,
                                              const Settings& settings) {
  std::vector<std::string> out;
  for (const auto& [key, wanted] :
       {std::pair{"envelope.lowest_clock_mhz", settings.lowest_clock_mhz},
        std::pair{"envelope.highest_clock_mhz", settings.highest_clock_mhz},
        std::pair{"found.locked_lowest_mhz", settings.found_lowest_mhz},
        std::pair{"found.locked_highest_mhz", settings.found_highest_mhz}}) {
    if (!wanted) continue;
    const auto step = step_of(capability.sm_clocks, Megahertz(*wanted));
    if (step && step->value() != *wanted)
      out.push_back(fmt::format("{} {:g}: {} has no such clock; it is taken as {:.0f} MHz", key,
                                *wanted, capability.id.name, step->value()));
  }
  return out;
}

Result<Envelope> clock_envelope(const Capability& capability, const Settings& settings) {
  EnvelopeBound limits{.source = "configuration"};
  if (settings.lowest_clock_mhz) limits.least = *settings.lowest_clock_mhz;
  if (settings.highest_clock_mhz) limits.most = *settings.highest_clock_mhz;
  return make_envelope(capability, limits).with(capability.id.uuid);
}

DriftRule drift_rule(const Settings& settings) {
  return settings.on_drift == "yield" ? DriftRule::yield : DriftRule::reassert;
}

Result<GovernedGpu> govern_gpu(TelemetrySource& source, ClockControl* control,
                               const ChosenPolicy& policy, const Settings& settings,
                               ModelCacheProvider* models) {
  const Capability& capability = source.capability();
  TRY(found_lock(capability, settings));
  const Envelope envelope = TRY(clock_envelope(capability, settings));
  const auto use =
      control == nullptr ? ModelCacheProvider::Use::recall : ModelCacheProvider::Use::keep;
  ModelCache* kept = models == nullptr ? nullptr : models->of(capability, envelope, use);
  PolicySetup setup = policy_setup(capability, envelope, policy.params, kept);
  setup.dry_run = control == nullptr;
  auto made = TRY(policy.info->create(setup).with(policy.info->name));
  return GovernedGpu{&source, control, std::move(made), policy.info->as_published, envelope};
}

GovernorOptions governor_options(const Settings& settings) {
  GovernorOptions out;
  out.rules.stale_after = from_seconds(settings.stale_after_s);
  out.rules.expire_after = from_seconds(settings.expire_after_s);
  out.rules.idle_after = from_seconds(settings.idle.after_s);
  out.rules.park_memory_after = from_seconds(settings.idle.park_memory_after_s);
  out.rules.lower_every = from_seconds(settings.lower_every_s);
  if (settings.temperature_limit_celsius)
    out.rules.temperature_limit = Celsius(*settings.temperature_limit_celsius);
  out.sampling.energy_every = from_seconds(settings.energy_every_s);
  out.sampling.activity_every = from_seconds(settings.activity_every_s);
  out.sampling.processes_every = from_seconds(settings.processes_every_s);
  return out;
}

std::optional<double> promised_performance(const ChosenPolicy& policy) {
  const auto delta = policy.params.number("delta");
  if (!delta || policy.info->promise != PolicyInfo::Promise::delta) return std::nullopt;
  return 1 - *delta;
}

std::optional<double> promised_performance(const ChosenPolicy& policy, const WorkStatus& work) {
  const auto own = promised_performance(policy);
  const auto promise = throughput_promise(work);
  if (!own || policy.info->as_published || !promise) return own;
  return 1 - max_loss(*promise).value();
}

double most_loss(const ChosenPolicy& policy) {
  if (policy.info->promise == PolicyInfo::Promise::no_loss) return 0;
  return 1 - promised_performance(policy).value_or(0);
}

std::optional<Fraction> policy_delta(const ChosenPolicy& policy) {
  const auto own = promised_performance(policy);
  if (!own) return std::nullopt;
  return Fraction(1 - *own);
}

}  // namespace derate
