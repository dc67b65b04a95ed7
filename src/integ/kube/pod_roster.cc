#include "integ/kube/pod_roster.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/printing.h"

namespace derate {
namespace {

constexpr std::size_t kLongestShown = 40;

std::string name_of(const ApiPod& pod) {
  return fmt::format("{}/{}", pod.name.name_space, pod.name.pod);
}

std::vector<PodDevice> devices_of(const std::vector<PodDevice>& devices, const PodName& pod) {
  std::vector<PodDevice> out;
  for (const PodDevice& device : devices)
    if (device.pod == pod) out.push_back(device);
  return out;
}

}  // namespace

void PodRoster::take_devices(Result<std::optional<std::vector<PodDevice>>> answer, Instant now) {
  if (!answer.ok() || !*answer) return;
  if ((*answer)->empty() && has_devices()) return;
  devices_ = **std::move(answer);
  before_ = uids_;
  devices_at_ = now;
}

void PodRoster::take_pods(Result<std::optional<std::vector<ApiPod>>> answer, Instant now) {
  if (!answer.ok() || !*answer) return;
  const std::vector<ApiPod> pods = **std::move(answer);
  pods_at_ = now;
  uids_.clear();
  for (const ApiPod& pod : pods) uids_.insert(pod.uid);
  // A static pod comes back under its UID: the devices were listed before that.
  std::erase_if(before_, [&](const std::string& uid) { return !uids_.contains(uid); });
  choose_wishing(pods);
  requests_.clear();
  for (const Wishing& each : wishing_) {
    if (!before_.contains(each.pod.uid)) continue;
    requests_.push_back({.name = each.pod.name,
                         .uid = each.pod.uid,
                         .devices = devices_of(devices_, each.pod.name),
                         .wish = each.wish});
  }
}

// Of pods with one UID, and of unfinished pods with one name, it is not known which has the
// devices.
void PodRoster::choose_wishing(const std::vector<ApiPod>& pods) {
  std::map<std::string, int> with_uid;
  std::map<PodName, int> with_name;
  for (const ApiPod& pod : pods) {
    ++with_uid[pod.uid];
    if (!pod.finished) ++with_name[pod.name];
  }
  wishing_.clear();
  problems_.clear();
  for (const ApiPod& pod : pods) {
    if (pod.finished || pod.annotations.empty()) continue;
    auto wish = parse_pod_wish(pod.annotations);
    if (!wish.ok())
      problems_.push_back(fmt::format("pod {}: {}", name_of(pod), wish.error().message));
    else if (!*wish)
      problems_.push_back(fmt::format("pod {}: annotation {}: allowed are delta, policy and govern",
                                      name_of(pod),
                                      log_text(pod.annotations.front().first, kLongestShown)));
    else if (with_uid[pod.uid] > 1)
      problems_.push_back(fmt::format("pod {}: another pod has its UID, too", name_of(pod)));
    else if (with_name[pod.name] > 1)
      problems_.push_back(fmt::format("pod {}: there are two of that name", name_of(pod)));
    else
      wishing_.push_back({pod, **std::move(wish)});
  }
  std::sort(wishing_.begin(), wishing_.end(),
            [](const Wishing& a, const Wishing& b) { return a.pod.uid < b.pod.uid; });
}

std::vector<PodRequest> PodRoster::requests(Instant now) const {
  const bool known =
      devices_at_ && pods_at_ && now - *devices_at_ <= kKeep && now - *pods_at_ <= kKeep;
  return known ? requests_ : std::vector<PodRequest>();
}

bool PodRoster::has_devices() const {
  return std::any_of(requests_.begin(), requests_.end(),
                     [](const PodRequest& each) { return !each.devices.empty(); });
}

bool PodRoster::is_waiting() const {
  return std::any_of(wishing_.begin(), wishing_.end(),
                     [&](const Wishing& each) { return !before_.contains(each.pod.uid); });
}

}  // namespace derate
