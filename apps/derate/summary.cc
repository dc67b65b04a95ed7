#include "summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/energy_text.h"
#include "base/json.h"
#include "govern/saving_json.h"
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

// A shorter run says nothing of a promise.
constexpr Duration kShortestJudged = std::chrono::seconds(30);

// Where performance lies, and how that is said.
struct Speed {
  double low = 0, high = 1;
  std::string text;
};

Speed speed_of(const GpuSummary& summary, const GpuFigures& figures) {
  // Of a dry run the truth is that nothing was written.
  if (summary.twin && !summary.dry_run) {
    const double known = summary.twin->performance;
    return {known, known, percent_text(known) + " of full speed"};
  }
  if (figures.saving)
    if (const auto share = performance(*figures.saving))
      return {share->low, share->high,
              fmt::format("{:.0f} % of full speed, 90 % sure between {:.1f} and {:.1f}",
                          100 * share->mean, 100 * share->low, 100 * share->high)};
  if (const auto ratio = figures.clock_ratio)
    return {ratio->value(), 1,
            fmt::format("at least {} of full speed by the clock alone",
                        percent_text(ratio->value(), 0))};
  return {0, 1, "no clock was read"};
}

std::optional<bool> promise_kept(const Verdict& verdict) {
  if (verdict.kind == Verdict::Kind::kept) return true;
  if (verdict.kind == Verdict::Kind::broken) return false;
  return std::nullopt;
}

const char* word_of(Verdict::Kind kind) {
  constexpr const char* kWords[] = {"none", "kept", "BROKEN", "not known"};  // in the kinds' order
  return kWords[static_cast<std::size_t>(kind)];
}

// By what the policy knew how far the work was: "kernel launches 93 % of the time (...), counters".
std::string progress_text(const GpuFigures& figures) {
  std::string out;
  const auto add = [&](const char* what, Duration held, const std::string& how) {
    if (held <= Duration::zero()) return;
    const double share = seconds(held) / std::max(1e-9, seconds(figures.time));
    out += fmt::format("{} {:.0f} % of the time{}, ", what, 100 * std::min(1.0, share), how);
  };
  add("heartbeats", figures.heartbeats, "");
  if (figures.launch_unsteadiness)
    add("kernel launches", figures.launches,
        fmt::format(" (shares of kernels within {:.1f} %)", 100 * *figures.launch_unsteadiness));
  return out.empty() ? "counters" : out + "else counters";
}

std::string beats_moved_text(double by) {
  return fmt::format(
      "at one clock their rate {} by {:.0f} % while power did not move: they may stand for unequal "
      "work, and the promise rests on them",
      by > 0 ? "rose" : "fell", 100 * std::abs(by));
}

// By the utilisation that was read; the last tenths of a second before a run may still be in it.
bool had_no_work(const GpuFigures& figures) {
  return figures.time > Duration::zero() && figures.without_work >= 0.98 * figures.time;
}

// The reason why no saving is reported though the policy has an estimate; empty: there is none.
std::string no_saving_text(const GpuSummary& summary, const GpuFigures& figures) {
  if (had_no_work(figures))
    return fmt::format("no work ran on GPU {}", summary.capability.id.index);
  if (summary.dry_run) {
    if (figures.capped <= Duration::zero() || 2 * figures.capped < figures.time) return {};
    return fmt::format("the power limit held its clock for {}", duration_text(figures.capped));
  }
  if (!figures.asked_clocks.empty()) return {};
  if (figures.failed_writes == 0) return "no clock was set";
  return fmt::format("all {} requests to the driver failed", figures.failed_writes);
}

std::optional<Saving> saving_of(const GpuSummary& summary, const GpuFigures& figures) {
  return no_saving_text(summary, figures).empty() ? figures.saving : std::nullopt;
}

// The saving, and of a simulated GPU the true one.
std::string saved_text(const GpuSummary& summary, const GpuFigures& figures) {
  std::string out;
  if (const auto saving = saving_of(summary, figures))
    out = summary.dry_run ? would_save_text(*saving) : saving_text(*saving);
  else if (figures.saving)
    out = "not known: " + no_saving_text(summary, figures);
  if (saving_of(summary, figures) && !out.empty()) out += ", estimated";
  if (!summary.twin || summary.dry_run) return out;
  if (!out.empty()) out += "; in truth ";
  return out + fmt::format(
                   "{} of the energy for the same work, at performance {} (against "
                   "max-freq on a simulated twin)",
                   percent_text(summary.twin->energy_saving),
                   percent_text(summary.twin->performance));
}

// One verdict for all: the worst.
Verdict::Kind verdict_of_all(std::span<const GpuAccount> gpus) {
  auto out = Verdict::Kind::none;
  for (const GpuAccount& each : gpus) {
    const auto kind = verdict_of(each.summary, each.figures).kind;
    if (kind == Verdict::Kind::broken || out == Verdict::Kind::broken)
      out = Verdict::Kind::broken;
    else if (kind != Verdict::Kind::none && out != Verdict::Kind::not_known)
      out = kind;
  }
  return out;
}

// What is known of simulated GPUs where nobody estimates: of one, since truths do not add up.
std::string truth_of_all(std::span<const GpuAccount> gpus) {
  if (gpus.size() != 1 || !gpus.front().summary.twin || gpus.front().summary.dry_run) return {};
  const Twin& twin = *gpus.front().summary.twin;
  return fmt::format("Saved {} in truth, as the GPU is simulated; speed {} of full",
                     percent_text(twin.energy_saving), percent_text(twin.performance));
}

std::string in_step_text(const GpuFigures& figures) {
  std::string out = fmt::format("with other GPUs, for {}", duration_text(figures.in_step));
  if (figures.straggled > Duration::zero())
    out += fmt::format("; they waited for this one for {}: {}", duration_text(figures.straggled),
                       figures.straggled_why);
  return out;
}

Json histogram_json(const Histogram& bins) {
  Json out = Json::array();
  for (const auto& [clock, time] : bins)
    out.push_back({{"clock_mhz", clock.value()}, {"seconds", seconds(time)}});
  return out;
}

}  // namespace

Verdict verdict_of(const GpuSummary& summary, const GpuFigures& figures) {
  using Kind = Verdict::Kind;
  if (!summary.promise) return {Kind::none, "none: this policy bounds no loss"};
  if (had_no_work(figures))
    return {Kind::not_known,
            fmt::format("not known: no work ran on GPU {} (promised {})",
                        summary.capability.id.index, percent_text(*summary.promise, 0))};
  if (summary.dry_run && !figures.saving)
    return {Kind::not_known,
            fmt::format("not known: nothing was written, and nobody estimates what would have been "
                        "(promised {})",
                        percent_text(*summary.promise, 0))};
  if (const std::string why = no_saving_text(summary, figures); summary.dry_run && !why.empty())
    return {Kind::not_known,
            fmt::format("not known: {} (promised {})", why, percent_text(*summary.promise, 0))};
  const Speed speed = speed_of(summary, figures);
  Kind kind = Kind::not_known;
  std::string why;
  if (speed.low >= *summary.promise)
    kind = Kind::kept;
  else if ((!summary.twin || summary.dry_run) && figures.time < kShortestJudged)
    why = "a run of less than 30 s says little: ";
  else if (speed.high < *summary.promise)
    kind = Kind::broken;
  const char* const would = summary.dry_run && kind != Kind::not_known ? "would be " : "";
  return {kind, fmt::format("{}{}: {}{} (promised {})", would, word_of(kind), why, speed.text,
                            percent_text(*summary.promise, 0))};
}

std::string closing_sentence(std::span<const GpuAccount> gpus) {
  Saving all;
  bool known = false, dry_run = false;
  std::string why;  // it is not known of one
  int failed = 0, requests = 0;
  for (const GpuAccount& each : gpus) {
    dry_run |= each.summary.dry_run;
    failed += each.figures.failed_writes;
    requests += each.figures.failed_writes + each.figures.writes;
    if (why.empty()) why = no_saving_text(each.summary, each.figures);
    const auto saving = saving_of(each.summary, each.figures);
    known |= saving.has_value();
    if (saving) all += *saving;
  }
  const auto kind = verdict_of_all(gpus);
  const std::string promise =
      kind == Verdict::Kind::none
          ? "nothing promised"
          : fmt::format("promise {}{}",
                        dry_run && kind != Verdict::Kind::not_known ? "would be " : "",
                        word_of(kind));
  const std::string saved = dry_run ? would_save_text(all) : saving_text(all);
  if (!known || saved.empty()) {
    if (const std::string truth = truth_of_all(gpus); !truth.empty())
      return fmt::format("{}; {}.", truth, promise);
    return fmt::format("What {} saved is not known{}; {}.", dry_run ? "would be" : "was",
                       why.empty() ? "" : ": " + why, promise);
  }
  const std::string first =
      failed > 0 ? fmt::format("{} of {} requests to the driver failed. ", failed, requests) : "";
  return fmt::format("{}{} {}; speed {}; {}.", first, dry_run ? "Would save" : "Saved", saved,
                     speed_text(all), promise);
}

// The fault of the energy counter, as text; empty: it has none.
std::string meter_text(const GpuFigures& figures) {
  if (figures.counter_still > Duration::zero())
    return fmt::format("the energy counter stood still for {}: power readings stand in",
                       duration_text(figures.counter_still));
  if (!figures.check_ratio || is_agreement(*figures.check_ratio)) return "";
  return fmt::format("power readings {}: THEY AND THE COUNTER DISAGREE",
                     signed_percent_text(*figures.check_ratio - 1));
}

std::string summary_text(const GpuSummary& summary, const GpuFigures& figures) {
  std::string out = fmt::format("GPU {}  {}  policy {}{}\n", summary.capability.id.index,
                                summary.capability.id.name, summary.policy,
                                summary.dry_run ? ", dry run: nothing was written" : "");
  const auto line = [&](const char* what, const std::string& text) {
    out += fmt::format("  {:<12}{}\n", what, text);
  };
  if (const auto joules = figures.energy)
    line("energy",
         fmt::format("{} ({:.1f} J, {}), mean power {} W over {}", kwh_text(joules->value()),
                     joules->value(), figures.from_counter ? "energy counter" : "power readings",
                     figures.mean_power ? fmt::format("{:.1f}", figures.mean_power->value()) : "-",
                     duration_text(figures.time)));
  else
    line("energy", figures.failed_reads == figures.ticks
                       ? "not known: no reading succeeded"
                       : "not known: the GPU gives neither an energy counter nor power");
  if (const std::string meter = meter_text(figures); !meter.empty()) line("meter", meter);
  if (const auto mean = figures.mean_clock)
    line("SM clock", fmt::format("mean {:.0f} MHz; {}", mean->value(),
                                 histogram_text(figures.clocks, Duration())));
  line(summary.dry_run ? "would lock" : "locked",
       histogram_text(figures.asked_clocks, figures.released));
  if (summary.hears_beats) line("progress", progress_text(figures));
  if (summary.hears_beats && figures.heartbeats_moved)
    line("beats", beats_moved_text(*figures.heartbeats_moved));
  if (figures.in_step > Duration::zero()) line("in step", in_step_text(figures));
  line("promise", verdict_of(summary, figures).text);
  if (const std::string saved = saved_text(summary, figures); !saved.empty())
    line(summary.dry_run ? "would save" : "saved", saved);
  if (figures.time < std::chrono::seconds(1))
    line("note", "too short to tell: the energy counter moves every 0.1 s");
  if (figures.capped > Duration::zero())
    line("power limit", fmt::format("held the clock down for {}", duration_text(figures.capped)));
  if (figures.thermal > Duration::zero())
    line("thermal", fmt::format("throttled for {}", duration_text(figures.thermal)));
  line("loop", fmt::format("{} ticks, {} clock changes{}", figures.ticks, figures.writes,
                           summary.dry_run ? " decided" : ""));
  if (figures.failed_reads + figures.failed_writes > 0)
    line("failures", fmt::format("{} reads, {} writes; the last: {}", figures.failed_reads,
                                 figures.failed_writes, figures.last_error));
  return out;
}

Json summary_json(const GpuSummary& summary, const GpuFigures& figures) {
  const Verdict verdict = verdict_of(summary, figures);
  const auto kept = promise_kept(verdict);
  const auto saving = saving_of(summary, figures);
  Json out = {{"index", summary.capability.id.index},
              {"uuid", summary.capability.id.uuid},
              {"name", summary.capability.id.name},
              {"policy", summary.policy},
              {"dry_run", summary.dry_run},
              {"time_seconds", seconds(figures.time)},
              {"energy_joules", or_null(figures.energy)},
              {"energy_source", figures.from_counter ? "energy counter" : "power readings"},
              {"energy_by_power_readings_joules", or_null(figures.integrated)},
              {"integrated_to_counter_ratio", or_null(figures.check_ratio)},
              {"counter_still_seconds", seconds(figures.counter_still)},
              {"mean_power_watts", or_null(figures.mean_power)},
              {"mean_sm_clock_mhz", or_null(figures.mean_clock)},
              {"sm_clock_histogram", histogram_json(figures.clocks)},
              {"asked_clock_histogram", histogram_json(figures.asked_clocks)},
              {"released_seconds", seconds(figures.released)},
              {"promised_performance_ratio", or_null(summary.promise)},
              {"promise_kept", or_null(kept)},
              {"promise_verdict", verdict.text},
              {"saving", saving ? saving_json(*saving) : Json(nullptr)},
              {"expected_performance_ratio", or_null(figures.expected_performance)},
              {"expected_coverage_ratio", figures.expected_coverage.value()},
              {"clock_ratio", or_null(figures.clock_ratio)},
              {"power_cap_seconds", seconds(figures.capped)},
              {"thermal_seconds", seconds(figures.thermal)},
              {"ticks", figures.ticks},
              {"clock_changes", figures.writes},
              {"failed_reads", figures.failed_reads},
              {"failed_writes", figures.failed_writes}};
  if (summary.hears_beats) {
    out["heartbeats_seconds"] = seconds(figures.heartbeats);
    out["launches_seconds"] = seconds(figures.launches);
    if (figures.launch_unsteadiness)
      out["launch_unsteadiness_ratio"] = *figures.launch_unsteadiness;
    if (figures.heartbeats_moved) out["heartbeats_moved_ratio"] = *figures.heartbeats_moved;
  }
  if (!figures.last_error.empty()) out["last_error"] = figures.last_error;
  if (summary.twin)
    out["twin"] = {{"performance_ratio", summary.twin->performance},
                   {"energy_saving_ratio", summary.twin->energy_saving}};
  return out;
}

}  // namespace derate::cli
