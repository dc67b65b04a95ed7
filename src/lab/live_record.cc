#include "lab/live_record.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr double kMostWork = 1e18;

Instant instant_of(double monotonic_seconds) { return Instant{} + from_seconds(monotonic_seconds); }

template <class Q>
void take(std::optional<Q>& out, const Json& json, const char* key) {
  if (const auto value = number_at(json, key)) out = Q(static_cast<double>(*value));
}

void take(std::optional<float>& out, const Json& json, const char* key) {
  if (const auto value = number_at(json, key)) out = static_cast<float>(*value);
}

// What the clock was asked to be: what is locked, or in a dry run what would be.
std::optional<float> asked_clock(const Json& record) {
  std::optional<float> out;
  take(out, record["actuation"], "locked_mhz");
  if (!out && text_at(record["actuation"], "outcome") == "shadow")
    take(out, record["clamped"], "clock_mhz");
  return out;
}

// `probing`: of the last decision that was none to hold.
GovernedTick tick_of(const Json& record, bool& probing) {
  static const Json kNone = Json::object();
  const Json& sample = record["sample"];
  GovernedTick out;
  out.time = instant_of(number_at(sample, "t_s").value_or(0));
  out.tick.clock_mhz = static_cast<float>(number_at(sample, "sm_clock_mhz").value_or(0));
  const auto instant = number_at(sample, "power_instant_watts");
  const auto usage = number_at(sample, "power_usage_watts");
  out.tick.power_w = static_cast<float>(instant ? *instant : usage.value_or(0));
  out.tick.asked_mhz = asked_clock(record);
  take(out.tick.gpu_utilisation, sample, "gpu_utilisation_ratio");
  take(out.tick.memory_utilisation, sample, "memory_utilisation_ratio");
  const Json& decision = record["decision"];
  if (text_at(decision, "kind") != "hold") probing = true_at(decision, "probing");
  out.tick.probing = probing;
  out.reason = text_at(record["clamped"], "reason");
  const std::string outcome = text_at(record["actuation"], "outcome");
  out.written = outcome == "written" || outcome == "released";
  take(out.energy, sample, "energy_joules");
  take(out.temperature, sample, "temperature_celsius");
  const auto activity = sample.find("activity");
  const Json& shares = activity != sample.end() && activity->is_object() ? *activity : kNone;
  for (const ActivityShare& share : activity_shares())
    take(out.activity.*share.member, shares, share.name);
  return out;
}

bool whole(const Json& record) {
  const auto object = [&](const char* key) {
    return record.contains(key) && record[key].is_object();
  };
  return record.is_object() && object("decision") && object("clamped") && object("actuation");
}

// The counter at this time, linear between the readings around it.
std::optional<double> counter_at(std::span<const GovernedTick> ticks, Instant time) {
  const GovernedTick* before = nullptr;
  for (const GovernedTick& tick : ticks) {
    if (!tick.energy) continue;
    if (tick.time >= time) {
      if (before == nullptr) return std::nullopt;
      const double share = seconds(time - before->time) / seconds(tick.time - before->time);
      return before->energy->value() + share * (*tick.energy - *before->energy).value();
    }
    before = &tick;
  }
  return std::nullopt;
}

void add_activity(Activity& means, std::span<const GovernedTick> ticks) {
  for (const ActivityShare& share : activity_shares()) {
    double sum = 0, count = 0;
    for (const GovernedTick& tick : ticks)
      if (const auto value = tick.activity.*share.member) sum += value->value(), ++count;
    if (count > 0) means.*share.member = Fraction(sum / count);
  }
}

}  // namespace

Result<std::vector<GovernedTick>> parse_records(std::string_view text, std::string_view file) {
  std::vector<GovernedTick> out;
  bool probing = false;
  std::size_t line = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) break;
    ++line;
    const Json record = parse_json(std::string(text.substr(0, end)));
    text.remove_prefix(end + 1);
    if (!whole(record))
      return Error{Errc::bad_data, fmt::format("{}:{}: not a record of a tick", file, line)};
    if (record.contains("sample") && record["sample"].is_object())
      out.push_back(tick_of(record, probing));
  }
  return out;
}

void add_ticks(JobRecord& job, std::span<const GovernedTick> ticks, Instant begin, Instant end) {
  auto first = ticks.begin();
  while (first != ticks.end() && first->time < begin) ++first;
  auto last = first;
  while (last != ticks.end() && last->time <= end) ++last;
  const std::span<const GovernedTick> inside(first, last);
  for (const GovernedTick& one : inside) {
    Tick tick = one.tick;
    tick.time_s = static_cast<float>(seconds(one.time - begin));
    job.clock_changes += one.written ? 1 : 0;
    if (job.remarks.empty() || job.remarks.back().text != one.reason)
      job.remarks.push_back({static_cast<std::uint32_t>(job.ticks.size()), one.reason});
    if (tick.probing) job.probing += (end - begin) / static_cast<std::int64_t>(inside.size());
    job.ticks.push_back(tick);
  }
  job.mean_clock = mean_clock(job.ticks);
  if (!inside.empty()) job.temperature_at_start = inside.front().temperature;
  add_activity(job.activity, inside);
  const auto from = counter_at(ticks, begin), to = counter_at(ticks, end);
  if (from && to) job.sensed_energy = Joules(*to - *from);
}

Result<std::optional<WorkReport>> parse_work_report(std::string_view output) {
  WorkReport out;
  bool any = false;
  double in_rates = 0;
  for (const std::string_view line : split(output, '\n')) {
    if (!line.starts_with('{')) continue;
    const Json json = parse_json(std::string(line));
    if (!json.is_object()) continue;
    const std::string kind = text_at(json, "line");
    if (kind == "header") out.unit = text_at(json, "work_unit");
    const auto work = number_at(json, "work"), length = number_at(json, "seconds");
    if (kind == "rate" && work && length) {
      in_rates += *work;
      if (const auto at = number_at(json, "monotonic_seconds")) {
        if (!out.begin) out.begin = instant_of(*at - *length);
        out.end = instant_of(*at);
      }
    }
    if (kind != "summary") continue;
    if (!work || !(*work > 0 && *work <= kMostWork))
      return Error{Errc::bad_data, fmt::format("its summary's work is no number in (0, {:g}]: {}",
                                               kMostWork, line.substr(0, 200))};
    out.work = *work;
    any = true;
  }
  if (!any) return std::optional<WorkReport>{};
  if (out.end && !(in_rates > 0))
    return Error{Errc::bad_data, "its lines of rates say no work above 0"};
  if (out.end) out.work = in_rates;  // what was done between these two instants
  return std::optional(out);
}

}  // namespace derate
