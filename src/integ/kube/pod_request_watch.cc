#include "integ/kube/pod_request_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <utility>

#include "base/check.h"
#include "integ/kube/kubelet.h"
#include "integ/kube/unary_call.h"

namespace derate {
namespace {

// Beta from Kubernetes 1.37 on, alpha in 1.35 and 1.36. A kubelet has one of them.
constexpr std::array kMethods = {"/v1beta1.Pods/ListPods", "/v1alpha1.Pods/ListPods"};
constexpr std::size_t kMostBytes = 256 << 20;

using Pods = std::optional<std::vector<ApiPod>>;

Result<Pods> list_api_pods(const PodSources& sources, const char* method, int stop_fd,
                           const Clock& clock) {
  PodsReader reader(sources.prefix);
  const UnaryCall what{.socket = sources.pods_socket,
                       .method = method,
                       .request = "",
                       .timeout = sources.timeout,
                       .most_bytes = kMostBytes,
                       .stop_fd = stop_fd};
  auto done = call(
      what, [&reader](std::string_view piece) { return reader.take(piece); }, clock);
  if (!done.ok() && done.error().code == Errc::not_found) return Pods();
  TRY(std::move(done));
  return Pods(TRY(std::move(reader).finish()));
}

bool is_stop(const Error& error) { return error.code == Errc::interrupted; }

}  // namespace

PodRequestWatch::PodRequestWatch(PodSources sources, const Clock& clock, Log log)
    : sources_(std::move(sources)), clock_(clock), log_(std::move(log)) {
  stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  CHECK(stop_.valid());
  thread_ = std::thread([this] { run(); });
}

PodRequestWatch::~PodRequestWatch() {
  CHECK(::eventfd_write(stop_.get(), 1) == 0);
  thread_.join();
}

PodRequests PodRequestWatch::latest() const {
  const std::lock_guard lock(mutex_);
  return latest_;
}

void PodRequestWatch::run() {
  for (;;) {
    if (roster_.wants_devices() && !take_devices()) return;
    if (!take_pods()) return;
    publish();
    log_problems();
    const bool waited = std::exchange(waiting_, roster_.is_waiting());
    const Duration pause = waiting_ && !waited ? kPeriodOfWaiting : period();
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(pause).count();
    pollfd stop{stop_.get(), POLLIN, 0};
    if (::poll(&stop, 1, static_cast<int>(ms)) > 0) return;
  }
}

Duration PodRequestWatch::period() const {
  return !answered_ && logged_ == "none" ? kPeriodWithoutSocket : sources_.period;
}

bool PodRequestWatch::take_devices() {
  auto answer = list_pods(
      {.socket = sources_.resources_socket, .timeout = sources_.timeout, .stop_fd = stop_.get()},
      clock_);
  if (!answer.ok() && is_stop(answer.error())) return false;
  log_devices(answer.ok() ? (*answer ? "" : "there is no " + sources_.resources_socket)
                          : answer.error().message);
  roster_.take_devices(std::move(answer), clock_.now());
  return true;
}

bool PodRequestWatch::take_pods() {
  auto answer = list_api_pods(sources_, kMethods[version_], stop_.get(), clock_);
  if (!answer.ok() && answer.error().code == Errc::not_supported) {
    version_ = (version_ + 1) % kMethods.size();
    answer = list_api_pods(sources_, kMethods[version_], stop_.get(), clock_);
  }
  if (!answer.ok() && is_stop(answer.error())) return false;
  log_pods(answer);
  roster_.take_pods(std::move(answer), clock_.now());
  return true;
}

void PodRequestWatch::publish() {
  auto requests = roster_.requests(clock_.now());
  const std::lock_guard lock(mutex_);
  if (latest_ && *latest_ == requests) return;
  if (!latest_ && requests.empty()) return;
  latest_ = std::make_shared<const std::vector<PodRequest>>(std::move(requests));
}

void PodRequestWatch::log_pods(const Result<Pods>& answer) {
  const bool answers = answer.ok() && *answer;
  const bool none = answer.ok() && !*answer && !answered_;
  answered_ = answered_ || answers;
  const std::string kind = answers ? "answers" : none ? "none" : "fails";
  if (std::exchange(logged_, kind) == kind) return;
  if (answers)
    log_.info(fmt::format("Pods API: {} pods on this node", (*answer)->size()));
  else if (none)
    log_.info(fmt::format("Pods API: there is no {}; annotations of pods are not read",
                          sources_.pods_socket));
  else
    log_.warning(fmt::format("Pods API: {}; {}",
                             answer.ok() ? "its socket is gone" : answer.error().message,
                             answered_ ? "the last answer counts for 5 minutes"
                                       : "annotations of pods count for nothing until it answers"));
}

// Empty: there is an answer.
void PodRequestWatch::log_devices(const std::string& failure) {
  const bool failed = !failure.empty();
  if (std::exchange(devices_failed_, failed) == failed) return;
  if (failed)
    log_.warning(
        fmt::format("pod-resources API: {}; the GPUs of pods with annotations are not "
                    "known, or those of the last answer",
                    failure));
  else
    log_.info("pod-resources API: answers again");
}

// A pod's problem is logged once as long as it is there.
void PodRequestWatch::log_problems() {
  std::set<std::string> now(roster_.problems().begin(), roster_.problems().end());
  for (const std::string& problem : now)
    if (!problems_.contains(problem)) log_.warning(problem + ": its annotations count for nothing");
  problems_ = std::move(now);
}

}  // namespace derate
