#include "integ/kube/machine_tenants.h"

#include <memory>
#include <optional>

#include "integ/kube/kubelet.h"
#include "integ/tenant_resolver.h"

namespace derate {
namespace {

constexpr Duration kPodsEvery = std::chrono::seconds(10);

struct Namer {
  SystemClock clock;
  TenantResolver resolver{machine_readers(), clock};
  std::optional<PodWatch> pods;

  TenantNames name(const GpuId& gpu, const Tenancy& tenancy, const SaidJobs& jobs) {
    if (pods) resolver.know_pods(pods->devices());
    return resolver.name(gpu, tenancy, jobs);
  }
};

}  // namespace

ResolveTenants machine_tenant_resolver(const std::string& pod_resources, const Log& log) {
  auto namer = std::make_shared<Namer>();
  if (!pod_resources.empty())
    namer->pods.emplace(KubeletOptions{.socket = pod_resources}, kPodsEvery, namer->clock, log);
  return [namer](const GpuId& gpu, const Tenancy& tenancy, const SaidJobs& jobs) {
    return namer->name(gpu, tenancy, jobs);
  };
}

}  // namespace derate
