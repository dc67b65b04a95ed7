#include "service/serving/service_place.h"

#include <fmt/format.h>

#include "core/gpu_id.h"
#include "govern/job_classes.h"
#include "integ/user_rule.h"

namespace derate {
namespace {

std::vector<GpuId> ids_of(std::span<const GpuTenants> gpus) {
  std::vector<GpuId> out;
  for (const GpuTenants& gpu : gpus) out.push_back(gpu.id);
  return out;
}

// "process VLLM::EngineCore, unit vllm.service"
std::string wanted_text(const ServiceSetting& service) {
  std::string out;
  for (const auto& [key, value] : {std::pair("process", service.process),
                                   {"unit", service.unit},
                                   {"container", service.container},
                                   {"user", service.user}})
    if (!value.empty()) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", key, value);
  return out;
}

}  // namespace

bool is_of(const ServiceSetting& service, std::optional<std::uint32_t> user,
           const ProcessFacts& process) {
  if (user && process.uid != user) return false;
  if (!service.process.empty() && !matches_program(service.process, process.name)) return false;
  if (!service.unit.empty() && process.unit != service.unit) return false;
  return service.container.empty() || process.container.starts_with(service.container);
}

ServicePlace place_of(const ServiceSetting& service, std::span<const GpuTenants> gpus,
                      const std::string& users) {
  ServicePlace out;
  if (!service.gpus.empty()) {
    const std::vector<GpuId> ids = ids_of(gpus);
    const auto chosen = select_gpus(ids, service.gpus);
    if (!chosen.ok()) {
      out.trouble = "gpus: " + chosen.error().message;
      return out;
    }
    for (const int at : *chosen) out.gpus.insert(ids[static_cast<std::size_t>(at)].uuid);
    return out;
  }
  std::optional<std::uint32_t> user;
  if (!service.user.empty()) {
    user = user_named(service.user, users);
    if (!user) {
      out.trouble = fmt::format("user: {} has no user '{}'", users, service.user);
      return out;
    }
  }
  std::size_t processes = 0;
  for (const GpuTenants& gpu : gpus)
    for (const GpuProcessTenant& tenant : gpu.tenants) {
      ++processes;
      if (is_of(service, user, tenant.process)) out.gpus.insert(gpu.id.uuid);
    }
  if (out.gpus.empty())
    out.trouble =
        fmt::format("no process on a GPU is of it ({}); {} on GPUs", wanted_text(service),
                    processes == 1 ? "1 process is" : fmt::format("{} processes are", processes));
  return out;
}

}  // namespace derate
