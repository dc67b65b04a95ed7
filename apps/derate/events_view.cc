#include "events_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "base/when.h"
#include "core/gpu_group.h"
#include "core/sample.h"
#include "simulated.h"
#include "status_view.h"
#include "terminal/output.h"
#include "terminal/text_width.h"

namespace derate::cli {
namespace {

Paint severity_paint(const std::string& severity) {
  if (severity == "error") return Paint::bad;
  return severity == "warning" ? Paint::warning : Paint::plain;
}

WallTime exact_time(double unix_seconds) { return WallTime(from_seconds(unix_seconds)); }

std::string mhz_text(const std::optional<double>& clock) {
  return clock ? fmt::format("{:.0f} MHz", *clock) : "-";
}

// With a sentence that says so where there is none.
std::string named_gpu(const WhyAnswer& answer) {
  return answer.index ? "GPU " + gpu_cell(*answer.index, answer.gpu) : answer.gpu;
}

std::string policy_text(const DecisionView& decision) {
  if (decision.policy.empty()) return "none: the GPU is only observed";
  std::string out = decision.policy;
  if (!decision.source.empty()) out += ", assigned by " + decision.source;
  if (!decision.who.empty()) out += fmt::format(" ({})", who_text(decision.who));
  return out;
}

std::string rule_text(const DecisionView& decision) {
  if (decision.policy.empty()) return {};
  return decision.rule.empty() || decision.rule == "none"
             ? "the policy"
             : fmt::format("the {} rule", decision.rule);
}

std::string belief_text(const DecisionView& decision) {
  if (!decision.expected_performance_ratio && !decision.promised_performance_ratio) return {};
  std::string out = decision.expected_performance_ratio
                        ? percent_text(*decision.expected_performance_ratio) +
                              " of the highest clock's performance"
                        : "nothing of the performance";
  if (decision.promised_performance_ratio)
    out += fmt::format("; promised {}", percent_text(*decision.promised_performance_ratio));
  return out;
}

std::string clock_text(const WhyAnswer& answer) {
  std::string out;
  const auto measured = answer.measured && answer.measured->sm_clock_mhz
                            ? answer.measured->sm_clock_mhz
                        : answer.decision ? answer.decision->sm_clock_mhz
                                          : std::nullopt;
  out = mhz_text(measured);
  if (!answer.decision) return out;
  if (answer.decision->asked_clock_mhz)
    out += ", set to " + mhz_text(answer.decision->asked_clock_mhz);
  else
    out += ", under the GPU's own control";
  if (answer.decision->set_power_limit_watts)
    out += fmt::format("; power limit set to {:.0f} W", *answer.decision->set_power_limit_watts);
  return out;
}

std::string reading_text(const MeasuredView& measured) {
  std::vector<std::string> parts;
  if (measured.power_watts) parts.push_back(fmt::format("{:.0f} W", *measured.power_watts));
  if (measured.gpu_utilisation_ratio)
    parts.push_back(percent_text(*measured.gpu_utilisation_ratio, 0) + " utilisation");
  if (measured.temperature_most_celsius)
    parts.push_back(fmt::format("{:.0f} °C", *measured.temperature_most_celsius));
  if (measured.throttle_bits && *measured.throttle_bits != 0)
    parts.push_back("held down by " + throttle_text(*measured.throttle_bits));
  return fmt::format("{}", fmt::join(parts, ", "));
}

void add_fact(std::string& out, const char* name, const std::string& value) {
  if (value.empty()) return;
  out += toned(fmt::format("{:<12}", name), Paint::dim) + value + "\n";
}

std::string changes_text(const WhyAnswer& answer, std::size_t width) {
  Table table({"changed", "clock", "<policy", "<decided by", "expected", "<why"});
  for (auto each = answer.changes.rbegin(); each != answer.changes.rend(); ++each)
    table.add({second_text(exact_time(each->time_unix_seconds)),
               each->asked_clock_mhz ? mhz_text(each->asked_clock_mhz) : "own control",
               each->policy.empty() ? "-" : each->policy,
               each->rule.empty() || each->rule == "none" ? "policy" : each->rule,
               each->expected_performance_ratio ? percent_text(*each->expected_performance_ratio, 1)
                                                : "-",
               each->reason});
  return table.text(width, {4, 2, 3});
}

}  // namespace

std::string throttle_text(std::int64_t bits) {
  constexpr std::pair<std::uint64_t, const char*> kWords[] = {
      {throttle::kGpuIdle, "gpu_idle"},
      {throttle::kApplicationsClocksSetting, "applications_clocks_setting"},
      {throttle::kSwPowerCap, "sw_power_cap"},
      {throttle::kHwSlowdown, "hw_slowdown"},
      {throttle::kSyncBoost, "sync_boost"},
      {throttle::kSwThermalSlowdown, "sw_thermal_slowdown"},
      {throttle::kHwThermalSlowdown, "hw_thermal_slowdown"},
      {throttle::kHwPowerBrakeSlowdown, "hw_power_brake_slowdown"},
      {throttle::kDisplayClockSetting, "display_clock_setting"}};
  std::string out;
  for (const auto& [bit, word] : kWords)
    if ((static_cast<std::uint64_t>(bits) & bit) != 0)
      out += (out.empty() ? "" : ", ") + std::string(word);
  return out.empty() ? "none" : out;
}

std::string event_line(const EventView& event) {
  const std::vector<int> several(event.gpu_indices.begin(), event.gpu_indices.end());
  const std::string gpu = !event.gpu.empty() && event.gpu_index
                              ? "GPU " + gpu_cell(*event.gpu_index, event.gpu)
                          : several.size() > 1 ? gpu_group_name(several)
                                               : cut_text(event.gpu, 12);
  // Those of one moment, as of one command, need no other time.
  const double since = event.first_unix_seconds.value_or(event.time_unix_seconds);
  const std::string from = event.time_unix_seconds - since < 1
                               ? ""
                               : fmt::format(", since {}", second_text(exact_time(since)));
  return fmt::format("{}  {}  {:<9}  {}  {}{}\n", second_text(exact_time(event.time_unix_seconds)),
                     toned(fmt::format("{:<7}", event.severity), severity_paint(event.severity)),
                     gpu, toned(fmt::format("{:<14}", event.event), Paint::strong),
                     printing_text(event.message), from);
}

std::string counts_line(const EventsAnswer& answer) {
  if (answer.total <= static_cast<std::int64_t>(answer.events.size())) return {};
  return fmt::format("{} events: {} warnings, {} errors. --each prints each.\n", answer.total,
                     answer.warnings, answer.errors);
}

std::string why_text(const WhyAnswer& answer, std::size_t width) {
  std::string out = toned(named_gpu(answer), Paint::strong) + " at " +
                    second_text(exact_time(answer.at_unix_seconds)) + "\n";
  if (!answer.decision) {
    out += "No decision of that time or before is kept.\n";
    if (!answer.measured) return out;
  }
  add_fact(out, "clock", clock_text(answer));
  if (answer.decision) {
    const DecisionView& decision = *answer.decision;
    add_fact(out, "because", decision.reason);
    add_fact(out, "policy", policy_text(decision));
    add_fact(out, "decided by", rule_text(decision));
    add_fact(out, "expected", belief_text(decision));
    add_fact(out, "bound", decision.bound.empty() ? "" : "by " + decision.bound);
    const double age = answer.at_unix_seconds - decision.time_unix_seconds;
    add_fact(out, "since",
             fmt::format("{}, {} before", second_text(exact_time(decision.time_unix_seconds)),
                         duration_text(from_seconds(std::max(0.0, age)))));
  }
  if (answer.measured)
    add_fact(out, "read then", reading_text(*answer.measured));
  else
    out += "Nothing was read then: derated did not run, or the GPU did not answer.\n";
  if (answer.changes.size() > 1)
    out += fmt::format("\nThe last {} changes, the newest first:\n", answer.changes.size()) +
           changes_text(answer, width);
  return out;
}

}  // namespace derate::cli
