#include "top_read.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>

#include "attribute_view.h"
#include "base/json.h"
#include "base/when.h"
#include "status_view.h"

namespace derate::cli {
namespace {

int index_at(const Json& json) {
  const double index = number_at(json, "index").value_or(-1);
  return index >= 0 && index < 1e6 ? static_cast<int>(index) : -1;
}

// Under the key `saved`; of a dry run `saving`, what it would save.
std::optional<TopSaving> saving_at(const Json& gpu) {
  const bool dry_run = true_at(gpu, "dry_run");
  const auto at = gpu.find(dry_run ? "saving" : "saved");
  if (at == gpu.end() || !at->is_object()) return std::nullopt;
  const auto ratio = number_at(*at, "energy_saving_ratio");
  if (!ratio) return std::nullopt;
  TopSaving out{*ratio, number_at(*at, "energy_saving_low_ratio"),
                number_at(*at, "energy_saving_high_ratio")};
  const auto used = number_at(*at, "energy_joules"), saved = number_at(*at, "saved_joules");
  if (used && saved) out.baseline_joules = *used + *saved;
  if (dry_run) out.baseline_joules = number_at(*at, "energy_at_highest_joules");
  const auto since = number_at(*at, "since_unix_seconds");
  if (since && *since > 0 && *since < 1e11)
    out.since = when_text(WallTime(std::chrono::seconds(static_cast<std::int64_t>(*since))));
  return out;
}

std::optional<double> used_at(const Json& gpu) {
  const auto at = gpu.find("saved");
  if (at == gpu.end() || !at->is_object()) return std::nullopt;
  return number_at(*at, "energy_joules");
}

TopGpu top_gpu(const Json& json) {
  TopGpu out;
  out.id = {index_at(json), text_at(json, "uuid"), "", text_at(json, "name")};
  out.watts = number_at(json, "power_watts");
  out.limit_watts = number_at(json, "set_power_limit_watts");
  if (!out.limit_watts) out.limit_watts = number_at(json, "factory_power_limit_watts");
  out.clock_mhz = number_at(json, "sm_clock_mhz");
  out.highest_clock_mhz = number_at(json, "highest_sm_clock_mhz");
  out.asked_clock_mhz = number_at(json, "asked_clock_mhz");
  out.utilisation = number_at(json, "gpu_utilisation_ratio");
  out.memory_utilisation = number_at(json, "memory_utilisation_ratio");
  out.celsius = number_at(json, "temperature_celsius");
  out.card = card_at(json);
  out.promise = number_at(json, "promised_performance_ratio");
  out.expected_performance = number_at(json, "expected_performance_ratio");
  out.beat_age_s = number_at(json, "beat_age_seconds");
  out.launch_unsteadiness = number_at(json, "launch_unsteadiness_ratio");
  out.every_phase = true_at(json, "every_phase");
  out.policy = text_at(json, "policy");
  out.how = assignment_text(json);
  if (out.how == "configuration") out.how.clear();  // as usual
  out.trouble = plain_trouble(text_at(json, "trouble"));
  out.silent = !text_at(json, "error").empty();
  if (is_silent(json)) {
    if (const std::string silence = silence_text(json); !silence.empty()) out.trouble = silence;
    out.promise = out.expected_performance = std::nullopt;
  }
  out.reason = out.trouble.empty() ? why_text(json) : text_at(json, "reason");
  out.work = text_at(json, "work");
  if (const std::string phase = text_at(json, "phase"); !phase.empty())
    out.work += (out.work.empty() ? "phase " : ", phase ") + phase;
  out.saving = saving_at(json);
  out.used_joules = used_at(json);
  out.promise_state = promise_text(json);
  out.breaks_promise = text_at(json, "promise") == "broken";
  out.below_promise = out.breaks_promise || text_at(json, "promise") == "below";
  out.needs_attention = !text_at(json, "attention").empty();
  return out;
}

// The rows of one GPU's attribution: its tenants, and what belongs to none of them.
void add_tenant_rows(std::vector<TopTenant>& out, const Json& attribution) {
  const int gpu = index_at(attribution);
  const auto watts = number_at(attribution, "power_watts");
  const auto tenants = attribution.find("tenants");
  if (tenants != attribution.end() && tenants->is_array())
    for (const Json& tenant : *tenants) {
      if (!tenant.is_object()) continue;
      const auto sigma = number_at(tenant, "sigma_watts");
      const std::string group = group_name(tenant);
      out.push_back({.gpu = gpu,
                     .key = text_at(tenant, "key"),
                     .name = tenant_name(tenant),
                     .user = text_at(tenant, "user"),
                     .group = group == "-" ? "" : group,
                     .source = source_text(tenant),
                     .watts = number_at(tenant, "power_watts"),
                     .margin_watts = sigma ? std::optional(*sigma * kNinetyPercent) : std::nullopt,
                     .share = number_at(tenant, "share_ratio"),
                     .joules = number_at(tenant, "energy_joules"),
                     .counted_s = number_at(tenant, "seconds"),
                     .memory_bytes = number_at(tenant, "memory_bytes")});
    }
  const auto rest = number_at(attribution, "unallocated_watts");
  if (rest)
    out.push_back({.gpu = gpu,
                   .name = "unallocated",
                   .watts = rest,
                   .share = watts && *watts > 0 ? std::optional(*rest / *watts) : std::nullopt,
                   .joules = number_at(attribution, "unallocated_joules"),
                   .counted_s = number_at(attribution, "seconds"),
                   .unallocated = true});
}

std::string attribution_note(const Json& attribution) {
  return text_at(attribution, "method") + "; idle power " + text_at(attribution, "idle_rule");
}

}  // namespace

void TopHistory::add(std::vector<TopGpu>& gpus, Instant now) {
  const Duration kept = std::chrono::seconds(kSeconds + 1) + 2 * pace_;
  for (TopGpu& gpu : gpus) {
    auto& readings = readings_[gpu.id.uuid];
    readings.push_back({now, pace_ + pace_ / 2, gpu.watts, gpu.clock_mhz});
    while (now - readings.front().time > kept) readings.pop_front();
    gpu.power_history = series(readings, &TopReading::watts, now);
    gpu.clock_history = series(readings, &TopReading::clock_mhz, now);
  }
  std::erase_if(readings_, [&](const auto& one) { return now - one.second.back().time > kept; });
}

void TopHistory::add_past(const std::map<std::string, std::vector<TopReading>>& past) {
  for (const auto& [uuid, earlier] : past) {
    if (earlier.empty()) continue;
    auto& readings = readings_[uuid];
    const auto end = readings.empty() ? earlier.end()
                                      : std::find_if(earlier.begin(), earlier.end(),
                                                     [&](const TopReading& reading) {
                                                       return reading.time >= readings.front().time;
                                                     });
    readings.insert(readings.begin(), earlier.begin(), end);
  }
}

Series TopHistory::series(const std::deque<TopReading>& readings,
                          std::optional<double> TopReading::*value, Instant now) const {
  // Whole seconds of the clock: a reading stays in its column while the others move on.
  const auto second = [](Instant time) {
    return std::chrono::floor<std::chrono::seconds>(time.time_since_epoch()).count();
  };
  Series out(kSeconds);
  const auto newest = second(now);
  for (const TopReading& reading : readings) {
    const auto held = std::chrono::ceil<std::chrono::seconds>(reading.held).count();
    for (auto at = second(reading.time); at < second(reading.time) + held; ++at) {
      const auto place = kSeconds - 1 - (newest - at);
      if (place >= 0 && place < kSeconds) out[static_cast<std::size_t>(place)] = reading.*value;
    }
  }
  return out;
}

TopPicture top_picture(const Json& gpus) {
  TopPicture out;
  for (const Json& gpu : gpus) {
    if (!gpu.is_object()) continue;
    out.gpus.push_back(top_gpu(gpu));
    const auto at = gpu.find("attribution");
    if (at == gpu.end() || !at->is_object()) continue;
    out.attribution = attribution_note(*at);
    if (is_silent(gpu)) continue;  // its tenants are those of the last reading
    add_tenant_rows(out.tenants, *at);
  }
  return out;
}

TopPicture attribution_picture(const Json& document) {
  TopPicture out;
  const auto gpus = document.find("gpus");
  if (gpus == document.end()) return out;
  for (const Json& gpu : *gpus) {
    if (!gpu.is_object()) continue;
    out.gpus.push_back(top_gpu(gpu));
    add_tenant_rows(out.tenants, gpu);
    out.attribution = text_at(document, "source") + ", by " + attribution_note(gpu);
  }
  return out;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "";
  const std::string whole = name.data();
  return whole.substr(0, whole.find('.'));
}

std::string time_of_day(WallTime now) {
  const std::time_t seconds =
      std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return "";
  return fmt::format("{:02}:{:02}:{:02}", local.tm_hour, local.tm_min, local.tm_sec);
}

}  // namespace derate::cli
