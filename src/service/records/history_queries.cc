#include "service/records/history_queries.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>

#include "api/requests.h"
#include "base/json.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/when.h"
#include "core/gpu_selection.h"
#include "core/saving.h"
#include "govern/saving_json.h"
#include "service/records/event_fold.h"
#include "service/records/event_log.h"
#include "service/records/snapshot.h"
#include "store/history/history_store.h"

namespace derate {
namespace {

using std::chrono::hours;

// --- what is asked for ---------------------------------------------------------------------------

struct HistoryPeriod {
  WallTime from{}, to{};
};

Result<HistoryPeriod> history_period(const std::string& from, const std::string& to, WallTime now) {
  HistoryPeriod out;
  out.from = TRY(parse_when(from, now).with("from"));
  out.to = TRY(parse_when(to, now).with("to"));
  if (out.from < out.to) return out;
  return Error{Errc::invalid_argument,
               fmt::format("from {} is not before to {}", when_text(out.from), when_text(out.to))};
}

Result<std::vector<std::string>> named_gpus(std::span<const GpuId> known,
                                            const std::string& choice) {
  std::vector<std::string> out;
  const GpuSelection selection = TRY(parse_gpu_selection(choice));
  for (const auto& [kind, name, number] : selection.names) {
    // A GPU that is gone, or whose file is read on another machine, is still found by its UUID.
    if (is_whole_gpu_uuid(name)) {
      out.push_back(name);
      continue;
    }
    if (known.empty())
      return Error{Errc::not_found,
                   fmt::format("GPU '{}': a history that is read from its file knows GPUs by their "
                               "whole UUID",
                               name)};
    for (const int at : TRY(select_gpus(known, name)))
      out.push_back(known[static_cast<std::size_t>(at)].uuid);
  }
  return out;
}

Result<std::string> named_gpu(std::span<const GpuId> known, const std::string& choice) {
  const auto all = TRY(named_gpus(known, choice));
  if (all.size() == 1) return all.front();
  return Error{Errc::invalid_argument,
               fmt::format("gpu '{}': one GPU is wanted, these are {}", choice, all.size())};
}

std::optional<int> index_of(std::span<const GpuId> known, const std::string& uuid) {
  for (const GpuId& each : known)
    if (each.uuid == uuid) return each.index;
  return std::nullopt;
}

Error unknown_word(const char* field, const std::string& word, const char* known) {
  return {Errc::invalid_argument,
          fmt::format("{} '{}'{}", field, word, choices(word, ": allowed are ", known))};
}

Result<std::optional<HistoryKind>> kind_named(const std::string& name) {
  if (name == "all") return std::optional<HistoryKind>();
  if (name == "gpu") return std::optional(HistoryKind::gpu);
  if (name == "tenant") return std::optional(HistoryKind::tenant);
  return unknown_word("kind", name, "gpu, tenant, all");
}

Result<SavingsBy> savings_by(const std::string& name) {
  constexpr std::pair<const char*, SavingsBy> kWords[] = {{"gpu", SavingsBy::gpu},
                                                          {"job", SavingsBy::job},
                                                          {"user", SavingsBy::user},
                                                          {"policy", SavingsBy::policy}};
  for (const auto& [word, by] : kWords)
    if (name == word) return by;
  return unknown_word("by", name, "gpu, job, user, policy");
}

const char* kind_word(HistoryKind kind) { return kind == HistoryKind::gpu ? "gpu" : "tenant"; }

// --- numbers -------------------------------------------------------------------------------------

std::int64_t unix_whole(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}
std::optional<std::int64_t> unix_whole(const std::optional<WallTime>& time) {
  return time ? std::optional(unix_whole(*time)) : std::nullopt;
}
double unix_exact(WallTime time) { return seconds(time.time_since_epoch()); }

double thousandths(std::int64_t value) { return static_cast<double>(value) / 1000; }

// No sensor is better than that, and it halves the text.
double to_thousandths(double value) { return std::round(value * 1000) / 1000; }

using OptionalNumber = std::optional<double>;

OptionalNumber thousandths(const std::optional<std::int64_t>& value) {
  return value ? OptionalNumber(thousandths(*value)) : std::nullopt;
}
OptionalNumber mean_of(const HistoryPoint& point, HistoryField sum, HistoryField time) {
  const auto mean = point.mean(sum, time);
  return mean ? OptionalNumber(to_thousandths(*mean)) : std::nullopt;
}
OptionalNumber ratio_of(const HistoryPoint& point, HistoryField permille, HistoryField time) {
  const auto mean = point.mean(permille, time);
  return mean ? OptionalNumber(std::round(*mean * 100) / 1e5) : std::nullopt;
}
OptionalNumber power_of(const HistoryPoint& point) {
  const auto& energy = point[HistoryField::energy_mj];
  const auto& time = point[HistoryField::covered_ms];
  if (!energy || !time || *time <= 0) return std::nullopt;
  return to_thousandths(static_cast<double>(*energy) / static_cast<double>(*time));
}

Saving saving_in(const HistoryPoint& point) {
  return saving_of({.energy_mj = point[HistoryField::saved_of_mj].value_or(0),
                    .at_highest_mj = point[HistoryField::saved_at_highest_mj].value_or(0),
                    .sd_mj = point[HistoryField::saved_sd_mj].value_or(0)});
}

// --- the history ---------------------------------------------------------------------------------

template <class T>
using Column = std::optional<std::vector<std::optional<T>>>;

// One value of each step; without any the column stays empty.
template <class T, class ValueOf>
void fill_column(Column<T>& column, const HistorySeries& series, const ValueOf& value_of) {
  std::vector<std::optional<T>> out;
  out.reserve(series.steps.size());
  bool any = false;
  for (const HistoryStep& step : series.steps) {
    out.push_back(value_of(step.point));
    any = any || out.back().has_value();
  }
  if (any) column = std::move(out);
}

void fill_energies(HistorySeriesView& out, const HistorySeries& series) {
  using F = HistoryField;
  const auto joules = [&](NumberColumn& column, F field) {
    fill_column(column, series, [=](const HistoryPoint& p) { return thousandths(p[field]); });
  };
  joules(out.energy_joules, F::energy_mj);
  joules(out.energy_sd_joules, F::energy_sd_mj);
  joules(out.power_most_watts, F::power_most_mw);
  joules(out.saved_of_joules, F::saved_of_mj);
  fill_column(out.power_watts, series, power_of);
  const auto saved = [&](NumberColumn& column, Joules EnergyEstimate::*part) {
    fill_column(column, series, [=](const HistoryPoint& p) {
      const auto known = energy_saved(saving_in(p));
      return known ? OptionalNumber(to_thousandths(((*known).*part).value())) : std::nullopt;
    });
  };
  saved(out.saved_joules, &EnergyEstimate::mean);
  saved(out.saved_low_joules, &EnergyEstimate::low);
  saved(out.saved_high_joules, &EnergyEstimate::high);
}

void fill_sensors(HistorySeriesView& out, const HistorySeries& series) {
  using F = HistoryField;
  const auto mean = [&](NumberColumn& column, F sum, F time) {
    fill_column(column, series, [=](const HistoryPoint& p) { return mean_of(p, sum, time); });
  };
  mean(out.sm_clock_mhz, F::sm_clock_mhz_ms, F::sm_clock_ms);
  mean(out.asked_clock_mhz, F::asked_clock_mhz_ms, F::asked_clock_ms);
  const auto ratio = [&](NumberColumn& column, F sum, F time) {
    fill_column(column, series, [=](const HistoryPoint& p) { return ratio_of(p, sum, time); });
  };
  ratio(out.gpu_utilisation_ratio, F::gpu_utilisation_permille_ms, F::gpu_utilisation_ms);
  ratio(out.memory_utilisation_ratio, F::memory_utilisation_permille_ms, F::memory_utilisation_ms);
  ratio(out.performance_ratio, F::performance_permille_ms, F::performance_ms);
  ratio(out.promised_performance_ratio, F::promise_permille_ms, F::promise_ms);
  fill_column(out.temperature_most_celsius, series, [](const HistoryPoint& p) {
    const auto& most = p[F::temperature_most_celsius];
    return most ? OptionalNumber(static_cast<double>(*most)) : std::nullopt;
  });
  fill_column(out.throttle_bits, series, [](const HistoryPoint& p) { return p[F::throttle_bits]; });
  const auto time = [&](NumberColumn& column, F field) {
    fill_column(column, series, [=](const HistoryPoint& p) { return thousandths(p[field]); });
  };
  time(out.broken_seconds, F::broken_ms);
  time(out.probing_seconds, F::probing_ms);
}

HistorySeriesView series_view(const HistorySeries& series, std::span<const GpuId> known) {
  const HistorySeriesKey& key = series.key;
  const bool of_gpu = key.kind == HistoryKind::gpu;
  HistorySeriesView out{.gpu = key.gpu,
                        .index = index_of(known, key.gpu),
                        .kind = kind_word(key.kind),
                        .tenant = key.tenant,
                        .pid = key.labels.pid,
                        .process = key.labels.process,
                        .user = key.labels.user,
                        .job = key.labels.job,
                        .container = key.labels.container,
                        .name_space = key.labels.name_space,
                        .pod = key.labels.pod,
                        .instance = key.labels.instance};
  if (of_gpu) out.policy = key.policy;
  for (const HistoryStep& step : series.steps) {
    const double covered = static_cast<double>(step.point[HistoryField::covered_ms].value_or(0));
    const double length = seconds(step.length) * 1000;
    out.begin_unix_seconds.push_back(unix_whole(step.begin));
    out.covered_ratio.push_back(to_thousandths(std::clamp(covered / length, 0.0, 1.0)));
  }
  fill_energies(out, series);
  fill_sensors(out, series);
  return out;
}

// --- savings -------------------------------------------------------------------------------------

void add_hour(SavingsLineView& line, const SavingsHour& hour) {
  line.hour_unix_seconds.push_back(unix_whole(hour.hour));
  line.covered_seconds.push_back(thousandths(hour.covered_ms));
  line.energy_joules.push_back(thousandths(hour.energy_mj));
  line.saved_of_joules.push_back(thousandths(hour.saved_of_mj));
  line.saved_at_highest_joules.push_back(thousandths(hour.saved_at_highest_mj));
  line.saved_sd_joules.push_back(thousandths(hour.saved_sd_mj));
}

struct UsedAndSaved {
  std::int64_t energy_mj = 0;
  SavingSums saving;

  void add(const SavingsHour& hour) {
    energy_mj += hour.energy_mj;
    saving.add({hour.saved_of_mj, hour.saved_at_highest_mj, hour.saved_sd_mj});
  }
  SavedView view() const {
    const bool estimated = saving.energy_mj > 0;
    return saved_view(Joules(thousandths(energy_mj)),
                      estimated ? std::optional(saving_of(saving)) : std::nullopt);
  }
};

WallTime hour_from(WallTime time) { return std::chrono::ceil<hours>(time); }

// What of all the time of the GPUs is known.
void tell_coverage(SavingsAnswer& out, const std::vector<SavingsHour>& of_gpus,
                   const HistoryPeriod& period, WallTime now) {
  std::map<std::string_view, bool> gpus;
  std::int64_t covered_ms = 0;
  for (const SavingsHour& hour : of_gpus) {
    gpus[hour.key] = true;
    covered_ms += hour.covered_ms;
  }
  const Duration time =
      std::min(hour_from(period.to), std::max(now, period.from)) - hour_from(period.from);
  out.gpus = static_cast<std::int64_t>(gpus.size());
  out.covered_seconds = thousandths(covered_ms);
  out.possible_seconds = std::max(out.covered_seconds,
                                  std::max(0.0, seconds(time)) * static_cast<double>(gpus.size()));
  if (out.possible_seconds > 0) out.known_ratio = out.covered_seconds / out.possible_seconds;
}

// --- why -----------------------------------------------------------------------------------------

DecisionView decision_view(const HistoryDecision& decision) {
  return {.time_unix_seconds = unix_exact(decision.time),
          .policy = decision.policy,
          .source = decision.source,
          .who = decision.who,
          .rule = decision.rule,
          .reason = decision.reason,
          .bound = decision.bound,
          .asked_clock_mhz = decision.asked_clock_mhz,
          .sm_clock_mhz = decision.sm_clock_mhz,
          .set_power_limit_watts = decision.set_power_limit_watts,
          .expected_performance_ratio = decision.expected_performance_ratio,
          .promised_performance_ratio = decision.promised_performance_ratio};
}

MeasuredView measured_view(const HistoryStep& step) {
  using F = HistoryField;
  const HistoryPoint& p = step.point;
  MeasuredView out{.begin_unix_seconds = unix_whole(step.begin), .seconds = seconds(step.length)};
  out.power_watts = power_of(p);
  out.sm_clock_mhz = mean_of(p, F::sm_clock_mhz_ms, F::sm_clock_ms);
  out.asked_clock_mhz = mean_of(p, F::asked_clock_mhz_ms, F::asked_clock_ms);
  out.gpu_utilisation_ratio = ratio_of(p, F::gpu_utilisation_permille_ms, F::gpu_utilisation_ms);
  out.performance_ratio = ratio_of(p, F::performance_permille_ms, F::performance_ms);
  out.promised_performance_ratio = ratio_of(p, F::promise_permille_ms, F::promise_ms);
  if (const auto& most = p[F::temperature_most_celsius])
    out.temperature_most_celsius = static_cast<double>(*most);
  out.throttle_bits = p[F::throttle_bits];
  return out;
}

// The reason for the clock of an observed GPU. No decision is kept when that clock changes.
std::string own_reason(const MeasuredView& measured) {
  Sample sample;
  if (measured.sm_clock_mhz) sample.sm_clock = Megahertz(*measured.sm_clock_mhz);
  if (measured.throttle_bits)
    sample.throttle_reasons = static_cast<std::uint64_t>(*measured.throttle_bits);
  // A second in which work began has the bits of both states.
  if (measured.gpu_utilisation_ratio.value_or(0) > 0 && sample.throttle_reasons)
    *sample.throttle_reasons &= ~throttle::kGpuIdle;
  return driver_reason(sample);
}

// The step that `at` lies in; of the last seconds, which are written some time later, the newest.
Result<std::optional<MeasuredView>> measured_at(const std::string& file, const std::string& gpu,
                                                WallTime at, WallTime now) {
  constexpr Duration kLate = std::chrono::seconds(10);
  const WallTime since = std::min(at, now - kLate);
  const auto second = std::chrono::floor<std::chrono::seconds>(at);
  const History history = TRY(read_history(file, {.from = second - kLate,
                                                  .to = second + std::chrono::seconds(1),
                                                  .gpus = {gpu},
                                                  .kind = HistoryKind::gpu}));
  const HistoryStep* last = nullptr;
  for (const HistorySeries& series : history.series)
    for (const HistoryStep& step : series.steps)
      if (step.begin <= at && step.begin + step.length > since &&
          (last == nullptr || step.begin >= last->begin))
        last = &step;
  return last == nullptr ? std::optional<MeasuredView>() : std::optional(measured_view(*last));
}

}  // namespace

Result<Json> answer_history(const std::string& file, const HistoryRead& request, WallTime now,
                            std::span<const GpuId> known) {
  const HistoryPeriod period = TRY(history_period(request.from, request.to, now));
  HistoryQuery query{.from = period.from, .to = period.to};
  query.gpus = TRY(named_gpus(known, request.gpus));
  query.kind = TRY(kind_named(request.kind));
  query.most_points = static_cast<std::size_t>(request.points);
  const History history = TRY(read_history(file, query));
  HistoryAnswer out{.from_unix_seconds = unix_whole(period.from),
                    .to_unix_seconds = unix_whole(period.to),
                    .step_seconds = seconds(history.step),
                    .first_unix_seconds = unix_whole(history.first),
                    .last_unix_seconds = unix_whole(history.last)};
  for (const HistorySeries& series : history.series)
    out.series.push_back(series_view(series, known));
  out.broken_rows = static_cast<std::int64_t>(history.broken_rows);
  for (const HistoryCut& cut : history.cuts)
    out.cuts.push_back({kind_word(cut.kind), seconds(cut.length), unix_whole(cut.from)});
  std::stable_sort(out.series.begin(), out.series.end(),
                   [](const HistorySeriesView& a, const HistorySeriesView& b) {
                     return a.index.value_or(1 << 30) < b.index.value_or(1 << 30);
                   });
  return answer_json(out);
}

Result<Json> answer_savings(const std::string& file, const SavingsRead& request, WallTime now,
                            std::span<const GpuId> known) {
  const HistoryPeriod period = TRY(history_period(request.from, request.to, now));
  const SavingsBy by = TRY(savings_by(request.by));
  if (hour_from(period.from) >= std::min(hour_from(period.to), now))
    return Error{Errc::invalid_argument,
                 fmt::format("from {} to {}: savings are kept by the hour, and none that has begun "
                             "begins in that time; try from {}",
                             when_text(period.from), when_text(period.to),
                             when_text(std::chrono::floor<hours>(std::min(period.from, now))))};
  const auto of_gpus = TRY(read_savings(file, SavingsBy::gpu, period.from, period.to));
  const auto rows =
      by == SavingsBy::gpu ? of_gpus : TRY(read_savings(file, by, period.from, period.to));
  SavingsAnswer out{.by = request.by,
                    .method = kSavingMethod,
                    .from_unix_seconds = unix_whole(hour_from(period.from)),
                    .to_unix_seconds = unix_whole(hour_from(period.to))};
  const auto second = std::chrono::seconds(1);
  const History kept = TRY(read_history(file, {.from = now - second, .to = now}));
  out.first_unix_seconds = unix_whole(kept.first);
  out.last_unix_seconds = unix_whole(kept.last);
  tell_coverage(out, of_gpus, period, now);
  std::map<std::string, SavingsLineView> lines;
  std::map<std::string, UsedAndSaved> sums;
  UsedAndSaved total;
  for (const SavingsHour& hour : rows) {
    add_hour(lines[hour.key], hour);
    sums[hour.key].add(hour);
    total.add(hour);
  }
  out.total = total.view();
  for (auto& [key, line] : lines) {
    line.key = key;
    line.sum = sums[key].view();
    if (by == SavingsBy::gpu) line.index = index_of(known, key);
    out.lines.push_back(std::move(line));
  }
  return answer_json(out);
}

namespace {

constexpr std::size_t kMostEventsToFold = 10'000;

EventView folded_view(const FoldedEvent& folded) {
  EventView out = event_view(folded.newest);
  if (folded.count == 1) return out;
  out.message = folded.message();
  out.count = static_cast<std::int64_t>(folded.count);
  out.first_unix_seconds = unix_exact(folded.first);
  for (const int index : folded.gpu_indices()) out.gpu_indices.push_back(index);
  if (folded.distinct.size() == 1) return out;
  // Fields are of one GPU.
  out.gpu.clear();
  out.gpu_index.reset();
  out.fields = {};
  return out;
}

}  // namespace

Result<Json> answer_events(const std::string& file, const EventsRead& request, WallTime now,
                           std::span<const GpuId> known) {
  EventQuery query{.after = request.after, .most = static_cast<std::size_t>(request.most)};
  if (!request.from.empty()) query.from = TRY(parse_when(request.from, now).with("from"));
  if (!request.to.empty()) query.to = TRY(parse_when(request.to, now).with("to"));
  if (!request.gpu.empty()) query.gpu = TRY(named_gpu(known, request.gpu));
  // Of a history that was begun anew who names an event of the one before has seen none.
  if (query.after > 0) {
    const auto newest = TRY(read_events(file, {.most = 1}));
    if (newest.empty() || query.after > newest.back().id) query.after = 0;
  }
  if (query.from && query.to && *query.from >= *query.to)
    return Error{Errc::invalid_argument, fmt::format("from {} is not before to {}",
                                                     when_text(*query.from), when_text(*query.to))};
  const EventCounts counts = TRY(count_events(file, query));
  EventsAnswer out{.total = counts.total, .warnings = counts.warnings, .errors = counts.errors};
  // Of events that are folded, more are read than are wanted.
  if (request.fold) query.most = kMostEventsToFold;
  std::vector<Event> events = TRY(read_events(file, query));
  for (Event& event : events)
    if (!event.gpu_index) event.gpu_index = index_of(known, event.gpu);
  if (!request.fold) {
    for (const Event& event : events) out.events.push_back(event_view(event));
    return answer_json(out);
  }
  const std::vector<FoldedEvent> folded = fold_events(events);
  const auto most = std::min(folded.size(), static_cast<std::size_t>(request.most));
  for (const FoldedEvent& each : std::span(folded).last(most))
    out.events.push_back(folded_view(each));
  return answer_json(out);
}

Result<Json> answer_why(const std::string& file, const WhyRead& request, WallTime now,
                        std::span<const GpuId> known) {
  const WallTime at = TRY(parse_when(request.at, now).with("at"));
  if (at > now)
    return Error{Errc::invalid_argument, fmt::format("at {} is yet to come", when_text(at))};
  WhyAnswer out{.gpu = TRY(named_gpu(known, request.gpu)), .at_unix_seconds = unix_exact(at)};
  out.index = index_of(known, out.gpu);
  for (const HistoryDecision& decision :
       TRY(read_decisions(file, out.gpu, at, static_cast<std::size_t>(request.changes))))
    out.changes.push_back(decision_view(decision));
  out.measured = TRY(measured_at(file, out.gpu, at, now));
  // While nothing was read nobody governed: derated did not run, was paused, or the GPU was lost.
  if (out.measured && !out.changes.empty()) {
    out.decision = out.changes.back();
    if (out.decision->policy.empty()) out.decision->reason = own_reason(*out.measured);
  }
  return answer_json(out);
}

Result<std::vector<GpuId>> gpus_of_history(const std::string& file) {
  constexpr std::size_t kNewest = 10'000;
  std::map<int, std::string> last;
  for (const Event& event : TRY(read_events(file, {.most = kNewest}))) {
    if (event.gpu.empty() || !event.gpu_index) continue;
    std::erase_if(last, [&](const auto& each) { return each.second == event.gpu; });
    last[*event.gpu_index] = event.gpu;
  }
  std::vector<GpuId> out;
  for (const auto& [index, uuid] : last) out.push_back({.index = index, .uuid = uuid});
  return out;
}

}  // namespace derate
