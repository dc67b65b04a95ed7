// The engines that serve language models: their newest metrics, their GPUs, and what becomes of
// their promises. GPUs of a service that promises a latency are governed by the policy slo. It runs
// on one thread and never blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "api/service_requests.h"
#include "base/clock.h"
#include "base/log.h"
#include "config/settings.h"
#include "core/event.h"
#include "govern/fleet/fleet.h"
#include "govern/fleet/record_sink.h"
#include "govern/heartbeat_registry.h"
#include "service/answers/command_router.h"
#include "service/serving/served_engine.h"
#include "service/serving/service_place.h"

namespace derate {

class ServiceBook {
 public:
  struct Options {
    // The energy that a GPU has used since some fixed moment; empty: not known.
    std::function<std::optional<Joules>(const std::string& uuid)> energy;
    std::function<void(EventKind kind, std::string message, EventFields fields)> tell;
    Log log = {};
  };
  // Metrics are old after this time, and slo then holds the highest clock. An engine that promises
  // nothing may miss some pages.
  static constexpr Duration kStale = std::chrono::seconds(2), kStaleShown = 5 * kStale;
  static constexpr Duration kPlaceEvery = std::chrono::seconds(1);
  static constexpr Duration kAgainAfter = std::chrono::seconds(10);  // what could not be governed
  // Seconds between two readings of an engine that promises a latency, and of another.
  static constexpr double kEveryPromised = 0.25, kEveryShown = 1;

  // It adds its operations to the routers. All arguments outlive it.
  ServiceBook(Clock& clock, Fleet& fleet, CommandRouter& operators, CommandRouter& clients,
              Options options);
  ServiceBook(const ServiceBook&) = delete;
  ServiceBook& operator=(const ServiceBook&) = delete;

  void rules(const Settings& settings);
  // Adds the engines to the work of the GPUs, in their order. `tenants`: the processes there, as
  // last listed.
  std::vector<GpuWork> with_services(std::vector<GpuWork> work,
                                     std::span<const GpuTenants> tenants);
  // Call it once a round, while the fleet is open: it governs the GPUs of services that promise a
  // latency, and gives back those of others.
  void step();
  std::vector<ServiceView> views() const;

 private:
  struct Service {
    ServiceSetting setting;
    ServedEngine engine;
    ServicePlace place = {};
    bool stale = true, reported = false;  // reported: an event says that it is stale
  };

  Result<nlohmann::ordered_json> obey(const ServiceReport& request);
  static Service made_of(const ServiceSetting& setting);
  void take(const GpuRecord& record);
  std::optional<Joules> energy_of(const Service& service) const;
  void find_places(std::span<const GpuTenants> tenants);
  void add_to(GpuWork& work, const std::string& uuid) const;
  void watch_age(Service& service);
  std::vector<const Service*> on(const std::string& uuid) const;
  void govern(std::size_t at, const Service* service);
  std::string trouble_of(const Service& service) const;
  ServiceView view_of(const Service& service) const;

  Clock& clock_;
  Fleet& fleet_;
  Options options_;
  std::vector<Service> services_;  // in the order of the configuration
  std::uint64_t runs_ = 0;         // of all engines, so far
  std::optional<Instant> placed_;
  std::set<std::string> given_;            // UUIDs of GPUs that are assigned
  std::map<std::string, Instant> failed_;  // by UUID: when it is tried again
};

}  // namespace derate
