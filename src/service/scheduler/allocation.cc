#include "service/scheduler/allocation.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "core/gpu_selection.h"
#include "govern/fleet/promise_watch.h"
#include "service/answers/number.h"

namespace derate {
namespace {

using Json = nlohmann::ordered_json;

std::string who_is(const SchedulerJob& job) {
  return fmt::format("{} job {} of {}", job.scheduler, job.id,
                     job.user.empty() ? fmt::format("user {}", job.uid) : job.user);
}

AllocationGpuView view_of(const Allocation& allocation, const AllocatedGpu& gpu,
                          const JobMeter& meter, Instant now) {
  AllocationGpuView out{.index = gpu.id.index, .uuid = gpu.uuid, .name = gpu.id.name};
  out.governed = gpu.given == Given::policy;
  out.why = gpu.why;
  const Duration time = allocation.time(now);
  const MeteredEnergy energy = energy_of(allocation, gpu, meter, now).value_or(MeteredEnergy{});
  out.source = to_string(energy.source);
  out.energy_joules = number(energy.energy);
  const Duration covered = energy.time - energy.uncovered;
  out.uncovered_seconds = seconds(std::max<Duration>(time - covered, Duration{}));
  if (out.energy_joules && covered > Duration{})
    out.mean_power_watts = *out.energy_joules / seconds(covered);
  if (energy.shared > Duration{}) out.shared_seconds = seconds(energy.shared);
  out.promised_performance_ratio = gpu.promise;
  if (!gpu.ledger) return out;
  const GpuFigures figures = gpu.ledger->figures();
  out.estimated_seconds = seconds(figures.time);
  out.expected_performance_ratio = number(figures.expected_performance);
  if (out.expected_performance_ratio && out.promised_performance_ratio)
    out.promise_kept =
        *out.expected_performance_ratio >= *out.promised_performance_ratio - PromiseWatch::kGrace;
  if (!figures.saving) return out;
  out.saved_joules = (figures.saving->energy_at_highest - figures.saving->energy).value();
  out.saved_sd_joules = figures.saving->energy_sd.value();
  return out;
}

void read_gpu(const Json& json, AllocatedGpu& gpu) {
  const auto joules = number_at(json, "joules"), time = number_at(json, "time_seconds");
  const auto uncovered = number_at(json, "uncovered_seconds");
  if (!joules || !time || !uncovered) return;
  if (const auto counter = number_at(json, "counter_joules")) gpu.counter_before = Joules(*counter);
  gpu.before = {.energy = Joules(*joules),
                .source = gpu.counter_before ? EnergySource::counter : EnergySource::integrated,
                .time = from_seconds(std::clamp(*time, 0.0, 1e9)),
                .uncovered = from_seconds(std::clamp(*uncovered, 0.0, 1e9))};
}

std::optional<Allocation> allocation_in(const Json& json, WallTime now) {
  if (!json.is_object() || !json.contains("begin")) return std::nullopt;
  auto request = request_of<AllocationBegin>(json["begin"]);
  const auto begun = number_at(json, "begun_unix_seconds");
  if (!request.ok() || !check_request_text(*request).ok() || !begun || *begun < 0 || *begun > 1e11)
    return std::nullopt;
  const WallTime at{std::chrono::duration_cast<WallTime::duration>(from_seconds(*begun))};
  Allocation out = make_allocation(*std::move(request), at, Instant{});
  out.before = std::max<Duration>(now - at, Duration{});
  const auto lived = json.find("lived");
  out.lived = lived != json.end() && lived->is_boolean() && lived->get<bool>();
  out.ended_by = text_at(json, "ended_by");
  const auto gpus = json.find("gpus");
  if (gpus == json.end() || !gpus->is_array()) return out;
  for (AllocatedGpu& gpu : out.gpus)
    for (const Json& each : *gpus)
      if (each.is_object() && text_at(each, "uuid") == gpu.uuid) read_gpu(each, gpu);
  return out;
}

}  // namespace

Result<void> check_request_text(const AllocationBegin& request) {
  const auto wrong = [](const std::string& what) { return Error{Errc::invalid_argument, what}; };
  if (request.job.id.empty()) return wrong("job.id: it is empty");
  if (request.job.uid < 0 || request.job.uid > 0xfffffffe)
    return wrong(fmt::format("job.uid {}: that is no user's number", request.job.uid));
  for (const std::string& uuid : request.gpus)
    if (!is_whole_gpu_uuid(uuid))
      return wrong(fmt::format("gpus: '{}' is no UUID of a GPU", uuid.substr(0, 80)));
  const std::set<std::string> unique(request.gpus.begin(), request.gpus.end());
  if (unique.size() != request.gpus.size()) return wrong("gpus: a GPU is there twice");
  return {};
}

Allocation make_allocation(AllocationBegin request, WallTime begun, Instant now) {
  Allocation out;
  out.who = who_is(request.job);
  out.begun = begun;
  out.since = now;
  out.hands_off = request.hands_off;
  for (const std::string& uuid : request.gpus) out.gpus.push_back({.uuid = uuid});
  out.request = std::move(request);
  return out;
}

std::optional<MeteredEnergy> energy_of(const Allocation& allocation, const AllocatedGpu& gpu,
                                       const JobMeter& meter, Instant now) {
  auto out = meter.energy(gpu.uuid, allocation.holder, now);
  if (!gpu.before) return out;
  MeteredEnergy all = *gpu.before;
  if (out) all.add(*out);
  return all;
}

AllocationView view_of(const Allocation& allocation, const JobMeter& meter, Instant now) {
  const AllocationBegin& request = allocation.request;
  AllocationView out{.job = request.job};
  if (allocation.wanted) out.policy = allocation.wanted->policy.info->name;
  out.begun_unix_seconds = seconds(allocation.begun.time_since_epoch());
  out.time_seconds = seconds(allocation.time(now));
  out.ended = allocation.ended.has_value();
  out.ended_by = allocation.ended_by;
  out.hands_off = allocation.hands_off;
  if (!request.gpus.empty()) out.energy_joules = 0.0;
  for (const AllocatedGpu& gpu : allocation.gpus) {
    out.gpus.push_back(view_of(allocation, gpu, meter, now));
    const AllocationGpuView& view = out.gpus.back();
    if (view.energy_joules && out.energy_joules)
      *out.energy_joules += *view.energy_joules;
    else
      out.energy_joules.reset();
    if (view.promise_kept) out.promise_kept = out.promise_kept.value_or(true) && *view.promise_kept;
  }
  return out;
}

std::string text_of(const std::vector<const Allocation*>& allocations) {
  Json all = Json::array();
  for (const Allocation* const allocation : allocations) {
    Json gpus = Json::array();
    for (const AllocatedGpu& gpu : allocation->gpus) {
      Json each = {{"uuid", gpu.uuid}};
      const auto& used = gpu.saved ? gpu.saved : gpu.before;
      const auto& counter = gpu.counter_saved ? gpu.counter_saved : gpu.counter_before;
      if (used && used->energy) {
        each["joules"] = used->energy->value();
        each["time_seconds"] = seconds(used->time);
        each["uncovered_seconds"] = seconds(used->uncovered);
      }
      if (counter && !allocation->ended) each["counter_joules"] = counter->value();
      gpus.push_back(std::move(each));
    }
    all.push_back({{"begin", request_json(AnyRequest(allocation->request))},
                   {"begun_unix_seconds", seconds(allocation->begun.time_since_epoch())},
                   {"lived", allocation->lived},
                   {"ended_by", allocation->ended_by},
                   {"gpus", std::move(gpus)}});
  }
  return json_text({{"allocations", std::move(all)}});
}

std::vector<Allocation> allocations_in(const std::string& text, WallTime now) {
  std::vector<Allocation> out;
  const Json document = parse_json(text);
  if (!document.is_object()) return out;
  const auto list = document.find("allocations");
  if (list == document.end() || !list->is_array()) return out;
  for (const Json& each : *list)
    if (auto allocation = allocation_in(each, now)) out.push_back(*std::move(allocation));
  return out;
}

}  // namespace derate
