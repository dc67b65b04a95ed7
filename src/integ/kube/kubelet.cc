#include "integ/kube/kubelet.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <set>
#include <utility>

#include "base/check.h"
#include "integ/kube/pod_resources.h"
#include "integ/kube/unary_call.h"

namespace derate {
namespace {

constexpr const char* kList = "/v1.PodResourcesLister/List";

std::size_t pods_in(const std::vector<PodDevice>& devices) {
  std::set<PodName> pods;
  for (const PodDevice& device : devices) pods.insert(device.pod);
  return pods.size();
}

}  // namespace

Result<std::optional<std::vector<PodDevice>>> list_pods(const KubeletOptions& options,
                                                        const Clock& clock) {
  UnaryCall what;
  what.socket = options.socket;
  what.method = kList;
  what.timeout = options.timeout;
  what.stop_fd = options.stop_fd;
  auto answer = call(what, clock);
  if (!answer.ok() && answer.error().code == Errc::not_found)
    return std::optional<std::vector<PodDevice>>();
  return std::optional(TRY(parse_pod_resources(TRY(std::move(answer)))));
}

std::string PodMemory::learn(Result<std::optional<std::vector<PodDevice>>> answer, Instant now) {
  std::string kind, text;
  if (answer.ok() && *answer) {
    kind = "answers";
    devices_ = **std::move(answer);
    answered_ = now;
    text = fmt::format("kubelet: answers; devices of {} pods", pods_in(devices_));
  } else if (answer.ok() && !answered_) {
    kind = "none";
    text = "kubelet: none here; pods are not named";
  } else {
    kind = "fails";
    text =
        fmt::format("kubelet: {}; {}", answer.ok() ? "its socket is gone" : answer.error().message,
                    answered_ ? "pods are as it told last" : "pods are not named");
    if (answered_ && now - *answered_ > kKeep) {
      kind = "forgotten";
      text = "kubelet: silent for 5 minutes; pods are not named by device any more";
      devices_.clear();
    }
  }
  if (told_ == kind) return "";
  told_ = kind;
  return text;
}

PodWatch::PodWatch(KubeletOptions options, Duration period, const Clock& clock, Log log) {
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  CHECK(stop_.valid());
  options.stop_fd = stop_.get();
  thread_ = std::thread([this, options = std::move(options), period, &clock, log = std::move(log)] {
    run(options, period, clock, log);
  });
}

PodWatch::~PodWatch() {
  CHECK(::eventfd_write(stop_.get(), 1) == 0);
  thread_.join();
}

std::vector<PodDevice> PodWatch::devices() const {
  const std::lock_guard lock(mutex_);
  return memory_.devices();
}

void PodWatch::run(const KubeletOptions& options, Duration period, const Clock& clock,
                   const Log& log) {
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(period).count();
  for (;;) {
    auto answer = list_pods(options, clock);
    const bool well = answer.ok();
    if (!answer.ok() && answer.error().code == Errc::interrupted) return;
    std::string news;
    {
      const std::lock_guard lock(mutex_);
      news = memory_.learn(std::move(answer), clock.now());
    }
    if (!news.empty()) well ? log.info(news) : log.warning(news);
    pollfd stop{options.stop_fd, POLLIN, 0};
    if (::poll(&stop, 1, static_cast<int>(wait)) > 0) return;
  }
}

}  // namespace derate
