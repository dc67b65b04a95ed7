#include "summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using Histogram = std::map<Megahertz, Duration>;

// The clocks that took most of the time, ascending: "1005 MHz 62 %, 1980 MHz 35 %, others 3 %".
std::string histogram_text(const Histogram& bins, Duration released) {
  constexpr std::size_t kShown = 5;
  double total = seconds(released);
  std::vector<std::pair<double, Megahertz>> longest;
  for (const auto& [clock, time] : bins) {
    total += seconds(time);
    longest.emplace_back(seconds(time), clock);
  }
  if (total <= 0) return "none";
  std::sort(longest.rbegin(), longest.rend());
  if (longest.size() > kShown) longest.resize(kShown);
  std::sort(longest.begin(), longest.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  std::string out;
  double shown = 0;
  const auto add = [&](const std::string& what, double time) {
    out += out.empty() ? "" : ", ";
    out += fmt::format("{} {:.0f} %", what, 100 * time / total);
    shown += time;
  };
  for (const auto& [time, clock] : longest) add(fmt::format("{:.0f} MHz", clock.value()), time);
  if (released > Duration::zero()) add("the GPU's own control", seconds(released));
  if (total - shown > 0.005 * total) add("others", total - shown);
  return out;
}

// Judged where the truth is known: against a simulated twin.
std::optional<bool> promise_kept(const GpuSummary& summary) {
  if (!summary.promise || !summary.twin) return std::nullopt;
  return summary.twin->performance >= *summary.promise;
}

std::string promise_text(const GpuSummary& summary, const Ledger& ledger) {
  std::string out =
      summary.promise ? fmt::format("performance of at least {}", percent_text(*summary.promise, 0))
                      : std::string("none: this policy bounds no loss");
  std::vector<std::string> beliefs;
  if (const auto expected = ledger.expected_performance())
    beliefs.push_back(fmt::format("estimated loss {} by the policy's model ({} of the time)",
                                  percent_text(1 - expected->value()),
                                  percent_text(ledger.expected_coverage().value(), 0)));
  if (const auto ratio = ledger.clock_ratio())
    beliefs.push_back(
        fmt::format("at most {} by the clock ratio", percent_text(1 - ratio->value())));
  for (const std::string& belief : beliefs) out += "; " + belief;
  if (const auto kept = promise_kept(summary)) out += *kept ? "; kept" : "; BROKEN, see below";
  return out;
}

Json histogram_json(const Histogram& bins) {
  Json out = Json::array();
  for (const auto& [clock, time] : bins)
    out.push_back({{"clock_mhz", clock.value()}, {"seconds", seconds(time)}});
  return out;
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(value->value()) : Json(nullptr);
}

}  // namespace

std::string summary_text(const GpuSummary& summary, const Ledger& ledger) {
  const EnergyMeter& meter = ledger.energy();
  std::string out = fmt::format("GPU {}  {}  policy {}{}\n", summary.capability.id.index,
                                summary.capability.id.name, summary.policy,
                                summary.dry_run ? ", dry run: nothing was written" : "");
  const auto line = [&](const char* what, const std::string& text) {
    out += fmt::format("  {:<12}{}\n", what, text);
  };
  if (const auto joules = meter.total())
    line("energy",
         fmt::format("{:.1f} J ({}), mean power {} W over {}", joules->value(),
                     meter.from_counter() ? "energy counter" : "power readings",
                     meter.mean_power() ? fmt::format("{:.1f}", meter.mean_power()->value()) : "-",
                     duration_text(meter.elapsed())));
  else
    line("energy", ledger.failed_reads() == ledger.ticks()
                       ? "not known: no reading succeeded"
                       : "not known: the GPU gives neither an energy counter nor power");
  if (const auto mean = ledger.measured_clocks().mean())
    line("SM clock", fmt::format("mean {:.0f} MHz; {}", mean->value(),
                                 histogram_text(ledger.measured_clocks().bins(), Duration())));
  line(summary.dry_run ? "would lock" : "locked",
       histogram_text(ledger.asked_clocks(), ledger.time_released()));
  line("promise", promise_text(summary, ledger));
  if (summary.twin)
    line("saved", fmt::format("{} of the energy for the same work, at performance {} (against "
                              "max-freq on a simulated twin)",
                              percent_text(summary.twin->energy_saving),
                              percent_text(summary.twin->performance)));
  if (meter.elapsed() < std::chrono::seconds(1))
    line("note", "too short to tell: the energy counter moves every 0.1 s");
  if (ledger.time_capped() > Duration::zero())
    line("power cap", fmt::format("in force for {}", duration_text(ledger.time_capped())));
  if (ledger.time_thermal() > Duration::zero())
    line("thermal", fmt::format("throttled for {}", duration_text(ledger.time_thermal())));
  line("loop", fmt::format("{} ticks, {} clock changes{}", ledger.ticks(), ledger.writes(),
                           summary.dry_run ? " decided" : ""));
  if (ledger.failed_reads() + ledger.failed_writes() > 0)
    line("failures", fmt::format("{} reads, {} writes; the last: {}", ledger.failed_reads(),
                                 ledger.failed_writes(), ledger.last_error()));
  return out;
}

Json summary_json(const GpuSummary& summary, const Ledger& ledger) {
  const EnergyMeter& meter = ledger.energy();
  Json out = {
      {"index", summary.capability.id.index},
      {"uuid", summary.capability.id.uuid},
      {"name", summary.capability.id.name},
      {"policy", summary.policy},
      {"dry_run", summary.dry_run},
      {"time_seconds", seconds(meter.elapsed())},
      {"energy_joules", or_null(meter.total())},
      {"energy_source", meter.from_counter() ? "energy counter" : "power readings"},
      {"energy_by_power_readings_joules", or_null(meter.integrated())},
      {"mean_power_watts", or_null(meter.mean_power())},
      {"mean_sm_clock_mhz", or_null(ledger.measured_clocks().mean())},
      {"sm_clock_histogram", histogram_json(ledger.measured_clocks().bins())},
      {"asked_clock_histogram", histogram_json(ledger.asked_clocks())},
      {"released_seconds", seconds(ledger.time_released())},
      {"promised_performance_ratio", summary.promise ? Json(*summary.promise) : Json(nullptr)},
      {"promise_kept", promise_kept(summary) ? Json(*promise_kept(summary)) : Json(nullptr)},
      {"expected_performance_ratio", or_null(ledger.expected_performance())},
      {"expected_coverage_ratio", ledger.expected_coverage().value()},
      {"clock_ratio", or_null(ledger.clock_ratio())},
      {"power_cap_seconds", seconds(ledger.time_capped())},
      {"thermal_seconds", seconds(ledger.time_thermal())},
      {"ticks", ledger.ticks()},
      {"clock_changes", ledger.writes()},
      {"failed_reads", ledger.failed_reads()},
      {"failed_writes", ledger.failed_writes()}};
  if (!ledger.last_error().empty()) out["last_error"] = ledger.last_error();
  if (summary.twin)
    out["twin"] = {{"performance_ratio", summary.twin->performance},
                   {"energy_saving_ratio", summary.twin->energy_saving}};
  return out;
}

}  // namespace derate::cli
