#include "service/serving/service_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "core/latency_promise.h"
#include "govern/fleet/policy_choice.h"
#include "policy/policy_options.h"

namespace derate {
namespace {

// Numbers of groups in step by detection are small (govern/group/step_detector).
constexpr std::uint64_t kFirstGroup = std::uint64_t{1} << 32;

std::string names_of(const auto& services) {
  std::string out;
  for (const auto* each : services) out += (out.empty() ? "" : " and ") + each->setting.name;
  return out;
}

}  // namespace

ServiceBook::ServiceBook(Clock& clock, Fleet& fleet, CommandRouter& operators,
                         CommandRouter& clients, Options options)
    : clock_(clock), fleet_(fleet), options_(std::move(options)) {
  operators.add<ServiceReport>(
      [this](const ServiceReport& request, const Peer&) { return obey(request); });
  clients.add<ServiceList>(
      [this](const ServiceList&, const Peer&) -> Result<nlohmann::ordered_json> {
        return answer_json(ServicesAnswer{views()});
      });
  fleet_.add_sink([this](const GpuRecord& record) { take(record); });
}

ServiceBook::Service ServiceBook::made_of(const ServiceSetting& setting) {
  std::vector<Promise> promises;
  for (const std::string& text : setting.promise) {
    auto promise = parse_latency(text);  // the configuration has checked it
    if (!promise.ok()) continue;
    promise->origin = setting.name;
    promises.push_back(*std::move(promise));
  }
  return {.setting = setting, .engine = ServedEngine(std::move(promises), setting.most_running)};
}

// A service that has not changed goes on.
void ServiceBook::rules(const Settings& settings) {
  std::vector<Service> now;
  for (const ServiceSetting& setting : settings.services) {
    const auto same = std::find_if(services_.begin(), services_.end(),
                                   [&](const Service& each) { return each.setting == setting; });
    now.push_back(same == services_.end() ? made_of(setting) : std::move(*same));
  }
  services_ = std::move(now);
  placed_.reset();
  failed_.clear();
}

// --- metrics -------------------------------------------------------------------------------------

Result<nlohmann::ordered_json> ServiceBook::obey(const ServiceReport& request) {
  ServiceReportAnswer answer;
  for (const ServiceReading& reading : request.readings) {
    const auto at = std::find_if(services_.begin(), services_.end(), [&](const Service& each) {
      return each.setting.name == reading.service;
    });
    // A page that the configuration named before a reload says nothing of the engine there is now.
    const auto differs = [](const std::string& read, const std::string& wanted) {
      return !read.empty() && read != wanted;
    };
    if (at == services_.end() || differs(reading.metrics, at->setting.metrics) ||
        differs(reading.wanted_model, at->setting.model))
      continue;
    at->engine.take(reading, clock_.now(), energy_of(*at), runs_);
    ++answer.taken;
  }
  return answer_json(answer);
}

std::optional<Joules> ServiceBook::energy_of(const Service& service) const {
  if (service.place.gpus.empty()) return std::nullopt;
  Joules sum{};
  for (const std::string& uuid : service.place.gpus) {
    const auto energy = options_.energy(uuid);
    if (!energy) return std::nullopt;
    sum += *energy;
  }
  return sum;
}

void ServiceBook::take(const GpuRecord& record) {
  for (Service& service : services_)
    if (service.place.gpus.contains(record.gpu.uuid())) service.engine.take(record);
}

// --- the GPUs ------------------------------------------------------------------------------------

void ServiceBook::find_places(std::span<const GpuTenants> tenants) {
  const Instant now = clock_.now();
  if (placed_ && now - *placed_ < kPlaceEvery) return;
  placed_ = now;
  for (Service& service : services_) {
    ServicePlace place = place_of(service.setting, tenants);
    if (place.gpus != service.place.gpus) service.engine.move();
    service.place = std::move(place);
  }
}

std::vector<const ServiceBook::Service*> ServiceBook::on(const std::string& uuid) const {
  std::vector<const Service*> out;
  for (const Service& service : services_)
    if (service.place.gpus.contains(uuid)) out.push_back(&service);
  return out;
}

// The prompts of each of two engines on a GPU delay the other's tokens, and neither's metrics show
// the clock that the other needs.
void ServiceBook::add_to(GpuWork& work, const std::string& uuid) const {
  const auto here = on(uuid);
  for (const Service* service : here) {
    const auto& promises = service->engine.promises();
    work.status.promises.insert(work.status.promises.end(), promises.begin(), promises.end());
  }
  if (here.size() != 1) return;
  const Service& only = *here.front();
  work.status.serving = only.engine.state();
  if (only.place.gpus.size() > 1 && !work.status.step_group)
    work.status.step_group = kFirstGroup + static_cast<std::uint64_t>(here.front() - &services_[0]);
}

std::vector<GpuWork> ServiceBook::with_services(std::vector<GpuWork> work,
                                                std::span<const GpuTenants> tenants) {
  if (services_.empty()) return work;
  find_places(tenants);
  for (Service& service : services_) watch_age(service);
  for (std::size_t at = 0; at < work.size() && at < tenants.size(); ++at)
    add_to(work[at], tenants[at].id.uuid);
  return work;
}

void ServiceBook::watch_age(Service& service) {
  const Duration after = service.engine.promises().empty() ? kStaleShown : kStale;
  const bool stale = service.engine.is_older_than(after, clock_.now());
  const bool was = std::exchange(service.stale, stale);
  const EventFields fields{{"service", service.setting.name}};
  const bool ends = stale && !was;
  if (ends && !std::exchange(service.reported, true))
    options_.tell(EventKind::metrics_lost,
                  fmt::format("service {}: there are no new metrics{}{}", service.setting.name,
                              service.engine.error().empty() ? "" : ": ", service.engine.error()),
                  fields);
  if (!stale && was && std::exchange(service.reported, false))
    options_.tell(EventKind::metrics_found,
                  fmt::format("service {}: there are metrics again", service.setting.name), fields);
}

// --- governing -----------------------------------------------------------------------------------

void ServiceBook::step() {
  if (services_.empty() && given_.empty()) return;
  for (std::size_t at = 0; at < fleet_.gpus().size(); ++at) {
    const auto here = on(fleet_.gpus()[at].uuid());
    const auto promises = std::find_if(here.begin(), here.end(), [](const Service* each) {
      return !each->engine.promises().empty();
    });
    govern(at, promises == here.end() ? nullptr : *promises);
  }
}

void ServiceBook::govern(std::size_t at, const Service* service) {
  const std::string uuid = fleet_.gpus()[at].uuid();
  const Assignment* const ours = fleet_.assignments().find(uuid, origins::service);
  if (service == nullptr) {
    if (ours == nullptr || !given_.erase(uuid)) return;
    const std::string who = ours->who;
    const auto restored =
        fleet_.end_request(uuid, origins::service, who, "no service promises a latency on it");
    if (!restored.ok())
      options_.log.error("not restored: " + restored.error().message, {{"gpu", uuid}});
    options_.log.info(fmt::format("service {}: the GPU is given back", who), {{"gpu", uuid}});
    return;
  }
  const Settings& settings = fleet_.settings();
  auto policy = choose_policy({.policy = "slo", .assignments = {}, .config = {}}, settings);
  if (!policy.ok()) return;  // the configuration has checked its parameters
  const std::string& who = service->setting.name;
  const PolicyAssignment wanted{*std::move(policy), settings.dry_run};
  if (ours != nullptr && given_.contains(uuid) && ours->who == who && ours->policy == wanted)
    return;
  if (const auto failed = failed_.find(uuid);
      failed != failed_.end() && clock_.now() < failed->second)
    return;
  Assignment request{.origin = origins::service, .who = who};
  request.policy = wanted;
  const auto done = fleet_.assign(at, std::move(request));
  if (!done.ok()) {
    failed_[uuid] = clock_.now() + kAgainAfter;
    options_.log.warning(
        fmt::format("service {}: the GPU is not governed for it: {}", who, done.error().message),
        {{"gpu", uuid}});
    return;
  }
  failed_.erase(uuid);
  given_.insert(uuid);
  options_.log.info(fmt::format("service {}: {}", who, *done), {{"gpu", uuid}});
}

// --- what is shown -------------------------------------------------------------------------------

std::string ServiceBook::trouble_of(const Service& service) const {
  const ServedEngine& engine = service.engine;
  const std::string why = engine.error().empty() ? "" : ": " + engine.error();
  if (!service.place.trouble.empty()) return service.place.trouble + why;
  const bool promises = !engine.promises().empty();
  const char* const held =
      promises && !fleet_.settings().dry_run ? "; its GPUs run at the highest clock" : "";
  for (const std::string& uuid : service.place.gpus)
    if (const auto here = on(uuid); here.size() > 1 && promises)
      return fmt::format("{} share GPU {}: no promise of one of them can be kept by the clock{}",
                         names_of(here), uuid, held);
  if (engine.state() == nullptr)
    return (why.empty() ? "no metrics have come yet: derate-agent reads them"
                        : "there are no metrics" + why) +
           held;
  if (service.stale)
    return fmt::format("its metrics are {:.0f} s old{}{}",
                       seconds(clock_.now() - engine.state()->time), why, held);
  if (const std::string no_promise = engine.why_no_promise(); !no_promise.empty())
    return no_promise + held;
  return engine.error();
}

ServiceView ServiceBook::view_of(const Service& service) const {
  const ServiceSetting& setting = service.setting;
  const bool promises = !service.engine.promises().empty();
  ServiceView out = service.engine.view(clock_.now());
  out.name = setting.name;
  out.metrics = setting.metrics;
  out.trouble = trouble_of(service);
  out.every_seconds = promises ? kEveryPromised : kEveryShown;
  out.wanted_model = setting.model;
  if (setting.names.is_named()) out.names = setting.names;
  for (const ManagedGpu& gpu : fleet_.gpus()) {
    if (!service.place.gpus.contains(gpu.uuid())) continue;
    ServiceGpuView& view = out.gpus.emplace_back();
    view.index = gpu.id().index;
    view.uuid = gpu.uuid();
    const bool ours = gpu.assigned && gpu.assigned->origin == origins::service &&
                      gpu.assigned->who == setting.name;
    view.governed = ours && gpu.governed;
    if (view.governed || !promises) continue;
    if (gpu.trouble)
      view.why = gpu.trouble->message;
    else if (gpu.assigned && !ours)
      view.why = fmt::format("it is governed for {}", to_string(gpu.assigned->origin));
  }
  return out;
}

std::vector<ServiceView> ServiceBook::views() const {
  std::vector<ServiceView> out;
  for (const Service& service : services_) out.push_back(view_of(service));
  return out;
}

}  // namespace derate
