// Any bytes as what a process, a device plugin and a kubelet say of whose a GPU is: sound labels or
// none, never a crash.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "integ/cgroup.h"
#include "integ/kube/pod_resources.h"
#include "integ/pod_devices.h"

namespace derate {
namespace {

bool only(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

void check_labels(const CgroupLabels& labels) {
  CHECK(labels.container.empty() ||
        (labels.container.size() == 64 && only(labels.container, "0123456789abcdef")));
  CHECK(labels.pod_uid.empty() || (is_pod_uid(labels.pod_uid) && labels.in_kubernetes));
  CHECK(labels.job.size() <= 10 && only(labels.job, "0123456789"));
  CHECK(labels.job.empty() ? labels.step.empty() && !labels.uid : labels.in_slurm);
}

}  // namespace
}  // namespace derate

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_labels(parse_cgroup(text));
  const std::string job = job_in_environment(text);
  CHECK(job.size() <= 10 && only(job, "0123456789"));
  if (const auto name = parse_device_name(text))
    CHECK(name->gpu_instance.has_value() == name->compute_instance.has_value());
  const auto devices = parse_pod_resources(text);
  CHECK(devices.ok() || devices.error().code == Errc::bad_data);
  if (!devices.ok()) return 0;
  GpuInstance instance;
  instance.uuid = "MIG-a";
  for (const PodDevice& device : *devices) CHECK(device.device.size() <= 253);
  CHECK(pods_of_gpu(*devices, GpuId{0, "GPU-1", "", ""}).size() <= devices->size());
  CHECK(pods_of_instance(*devices, GpuId{}, instance).size() <= devices->size());
  return 0;
}
