#include "pods_sidecar.h"

#include <fmt/format.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/background_worker.h"
#include "base/json.h"
#include "base/json_limits.h"
#include "base/percent.h"
#include "base/printing.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "integ/kube/unary_server.h"
#include "service/http/http_call.h"
#include "service/transport/unix_socket.h"

namespace derate::pods {
namespace {

constexpr const char* kListPodsMethod = "/v1alpha1.Pods/ListPods";
// For derated, which is root, and a process of this program's own user.
constexpr ::mode_t kSocketMode = 0600;
constexpr int kSocketQueue = 16;
constexpr Duration kLeastRound = std::chrono::seconds(1), kMostRound = std::chrono::seconds(10);
// The API server ends a watch after this time, and the pods are listed again.
constexpr int kWatchSeconds = 300;
// Metadata alone, without specs and states, of which a pod's author can write far more; from a
// server that does not know it, whole pods (Kubernetes API concepts, "Receiving resources as
// Tables", and PartialObjectMetadata there).
constexpr const char* kAcceptList =
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json";
constexpr const char* kAcceptEvents =
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io, application/json";

// The error of an answer whose status is not 200, with the `message` of its Status object.
Error api_server_error(const HttpResponse& answer) {
  const auto status = parse_json(answer.body, JsonLimits{});
  const std::string why = status.ok() && status->is_object() ? text_at(*status, "message") : "";
  return {Errc::query_failed, fmt::format("HTTP status {}{}{}", answer.status,
                                          why.empty() ? "" : ": ", log_text(why, 200))};
}

// With no failure a second, and twice as long after each, up to kMostRound.
Duration round_after(int failures) {
  return std::min(kMostRound, kLeastRound * (1 << std::min(failures, 10)));
}

// A timer that can be read when it has not been set for `silence`.
class SilenceTimer {
 public:
  explicit SilenceTimer(Duration silence) : silence_(silence) { set(); }
  int fd() const { return timer_.get(); }
  void set() const {
    const auto whole = std::chrono::floor<std::chrono::seconds>(silence_);
    itimerspec due{};
    due.it_value.tv_sec = whole.count();
    due.it_value.tv_nsec = (silence_ - whole).count();
    (void)::timerfd_settime(timer_.get(), 0, &due, nullptr);
  }

 private:
  Duration silence_;
  UniqueFd timer_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
};

Result<void> check_socket_name(const char* option, const std::string& path) {
  if (!path.empty()) return {};
  return Error{Errc::invalid_argument,
               fmt::format("{} '': allowed is the path of a unix socket", option)};
}

}  // namespace

Result<void> check_options(const PodsSidecarOptions& options) {
  TRY(check_socket_name("--socket", options.socket));
  TRY(check_socket_name("--api-server", options.api_server));
  for (const auto& [option, value] :
       {std::pair("--node", options.node), std::pair("--prefix", options.prefix)})
    if (!is_dns_subdomain(value))
      return Error{Errc::invalid_argument,
                   fmt::format("{} '{}': allowed is a DNS subdomain: at most 253 of a-z, 0-9, '-' "
                               "and '.', such as gpu7.example.org",
                               option, log_text(value, 300))};
  return {};
}

// --- PodMirror -----------------------------------------------------------------------------------

void PodMirror::take_list(NodePods list) {
  version_ = std::move(list.version);
  pods_.clear();
  for (const NodePod& pod : list.pods) pods_.insert_or_assign(pod.uid, encode_listed_pod(pod));
}

bool PodMirror::take_change(const PodChange& change) {
  if (change.kind == PodChange::Kind::failed) return false;
  if (!change.version.empty()) version_ = change.version;
  if (change.kind == PodChange::Kind::deleted) pods_.erase(change.pod.uid);
  if (change.kind == PodChange::Kind::present)
    pods_.insert_or_assign(change.pod.uid, encode_listed_pod(change.pod));
  return pods_.size() <= kMostListedPods;
}

std::string PodMirror::answer() const {
  std::string out;
  for (const auto& [uid, entry] : pods_) out += entry;
  return out;
}

// --- ApiServerState ------------------------------------------------------------------------------

std::string ApiServerState::heard(std::size_t pods, Instant now) {
  heard_ = now;
  if (std::exchange(logged_, Logged::answers) == Logged::answers) return "";
  return fmt::format("API server: answers; {} pods are on this node", pods);
}

std::string ApiServerState::failed(const Error& error, Instant now) {
  if (heard_ && now - *heard_ > kKeep) {
    heard_.reset();
    logged_ = Logged::silent;
    return fmt::format("API server: no answer for 5 minutes; no pods are served: {}",
                       error.message);
  }
  if (logged_ == Logged::fails || logged_ == Logged::silent) return "";
  logged_ = Logged::fails;
  return fmt::format("API server: {}; {}", error.message,
                     heard_ ? "the pods of its last answer are served" : "no pods are served");
}

std::string ApiServerState::watch_ended(const std::optional<Error>& error) {
  if (!error) {
    watches_ = true;
    return "";
  }
  if (!std::exchange(watches_, false)) return "";
  return fmt::format("API server: pods are listed again and again, as a watch fails: {}",
                     error->message);
}

// --- LineReader ----------------------------------------------------------------------------------

bool LineReader::put(std::string_view piece, const std::function<bool(std::string_view)>& take) {
  for (std::size_t end = 0; (end = piece.find('\n')) != std::string_view::npos;) {
    rest_ += piece.substr(0, end);
    piece.remove_prefix(end + 1);
    const std::string line = std::exchange(rest_, {});
    if (line.size() > kLongest || !take(line)) return false;
  }
  rest_ += piece;
  return rest_.size() <= kLongest;
}

// --- PodsSidecar ---------------------------------------------------------------------------------

std::string PodsSidecar::target(std::string_view parameters) const {
  const std::string selector =
      fmt::format("spec.nodeName={},status.phase!=Succeeded,status.phase!=Failed", options_.node);
  return fmt::format("/api/v1/pods?fieldSelector={}{}", percent_encoded(selector), parameters);
}

// With a version the API server answers from its cache, with nothing older than that; with "0" it
// gives what it has, which after a failure may be older than what was known.
Result<NodePods> PodsSidecar::list() const {
  const std::string version = mirror_.version().empty() ? "0" : mirror_.version();
  const HttpAsk ask{.target = target("&resourceVersion=" + percent_encoded(version)),
                    .fields = {{"Accept", kAcceptList}},
                    .most_bytes = kMostPodListBytes};
  const HttpResponse answer = TRY(http_call(options_.api_server, ask, kPatience));
  if (answer.status != 200) return api_server_error(answer);
  return parse_pod_list(answer.body, options_.prefix).with("list of pods");
}

bool PodsSidecar::take_line(std::string_view line) {
  auto change = parse_pod_change(line, options_.prefix);
  if (!change.ok()) {
    wrong_ = std::move(change).error().with("event of a pod");
    return false;
  }
  if (mirror_.take_change(*change)) return true;
  // Too old a version, as a rule: a list begins anew.
  mirror_.forget_version();
  return false;
}

Result<void> PodsSidecar::watch() {
  const HttpAsk ask{
      .target = target(fmt::format("&resourceVersion={}&watch=true&allowWatchBookmarks=true"
                                   "&timeoutSeconds={}",
                                   percent_encoded(mirror_.version()), kWatchSeconds)),
      .fields = {{"Accept", kAcceptEvents}},
      .most_bytes = 64 << 10};
  const SilenceTimer silence(kSilence);
  LineReader lines;
  bool begun = false;
  wrong_.reset();
  const auto answer =
      http_stream(options_.api_server, ask, silence.fd(), [&](std::string_view piece) {
        silence.set();
        begun = true;
        const bool goes_on = lines.put(piece, [&](std::string_view l) { return take_line(l); });
        (void)state_.heard(mirror_.size(), clock_.now());  // logged by the list before
        serve_(mirror_.answer());
        return goes_on;
      });
  if (wrong_) return *std::exchange(wrong_, std::nullopt);
  if (begun) return {};  // the next list says whether the API server has gone
  if (!answer.ok()) return answer.error();
  // 410: the version is too old, and the next list begins anew.
  mirror_.forget_version();
  if (answer->status == 410) return {};
  return api_server_error(*answer);
}

Duration PodsSidecar::round() {
  auto listed = list();
  if (!listed.ok()) {
    mirror_.forget_version();
    const std::string news = state_.failed(listed.error(), clock_.now());
    if (!news.empty()) log_.warning(news);
    if (!state_.counts()) serve_(std::nullopt);
    return round_after(++failures_);
  }
  failures_ = 0;
  mirror_.take_list(*std::move(listed));
  const std::string begun = state_.heard(mirror_.size(), clock_.now());
  if (!begun.empty()) log_.info(begun);
  serve_(mirror_.answer());
  if (mirror_.version().empty()) return kLeastRound;
  const auto watched = watch();
  const std::string news =
      state_.watch_ended(watched.ok() ? std::nullopt : std::optional(watched.error()));
  if (!news.empty()) log_.warning(news);
  return kLeastRound;
}

Result<void> serve_pods(const PodsSidecarOptions& options, const Log& log) {
  // The threads outlive this function, and whatever is destroyed when main() ends.
  static SystemClock clock;
  TRY(check_options(options));
  UniqueFd listening = TRY(listen_at(options.socket, kSocketMode, kSocketQueue).with("--socket"));
  const std::shared_ptr<UnaryServer> server =
      TRY(UnaryServer::create(std::move(listening), {.methods = {kListPodsMethod}}, clock));
  log.info(fmt::format("serving the pods of node {} on {}, asking the API server at {}",
                       options.node, options.socket, options.api_server));
  start_thread([options, server, log] {
    PodsSidecar sidecar(
        options,
        [&](std::optional<std::string> answer) {
          answer ? server->set_answer(*std::move(answer)) : server->clear_answer();
        },
        clock, log);
    while (true) {
      const Instant begun = clock.now();
      const Duration wait = sidecar.round();
      while (clock.now() < begun + wait) (void)clock.sleep_until(begun + wait);
    }
  });
  return {};
}

}  // namespace derate::pods
