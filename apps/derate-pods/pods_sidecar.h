// derate-pods, for kubelets without the Pods API: lists and watches the pods of a node at
// the API server, through `kubectl proxy` on a unix socket, and serves them to derated as the
// kubelet's Pods API does. It has no token, no GPU and no network.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "integ/kube/pod_list.h"

namespace derate::pods {

struct PodsSidecarOptions {
  std::string socket;      // where the Pods API is served
  std::string node;        // whose pods
  std::string api_server;  // socket of `kubectl proxy`
  std::string prefix;      // of the annotations that are passed on
};
// Errors: invalid_argument with the option, the value and what is allowed.
Result<void> check_options(const PodsSidecarOptions& options);

// The pods of a node as the API server's list and the changes after it say. Pure.
class PodMirror {
 public:
  void take_list(NodePods list);
  // False: the pods have to be listed again.
  bool take_change(const PodChange& change);

  // ListPodsResponse, ordered by UID.
  std::string answer() const;
  std::size_t size() const { return pods_.size(); }
  // resourceVersion of the last list or change; empty: not known.
  const std::string& version() const { return version_; }
  void forget_version() { version_.clear(); }

 private:
  std::map<std::string, std::string> pods_;  // entries of the answer, by UID
  std::string version_;
};

// Whether the mirror's pods still count, and what is to be logged of the API server. Pure.
class ApiServerState {
 public:
  // Pods are served for this time after the API server was last heard.
  static constexpr Duration kKeep = std::chrono::minutes(5);

  // Each returns the sentence that is to be logged; empty: there is nothing new.
  std::string heard(std::size_t pods, Instant now);
  std::string failed(const Error& error, Instant now);
  // The watch has ended, or could not begin.
  std::string watch_ended(const std::optional<Error>& error);

  bool counts() const { return heard_.has_value(); }

 private:
  enum class Logged : std::uint8_t { nothing, answers, fails, silent };
  std::optional<Instant> heard_;
  Logged logged_ = Logged::nothing;
  bool watches_ = true;
};

// Lines of a stream that comes in pieces.
class LineReader {
 public:
  static constexpr std::size_t kLongest = 8 << 20;  // etcd's objects have 1.5 MiB

  // Calls `take` with each line that ends in this piece, until it returns false. False then, and
  // for a line that is too long.
  bool put(std::string_view piece, const std::function<bool(std::string_view line)>& take);

 private:
  std::string rest_;
};

class PodsSidecar {
 public:
  // Of the API server's answer to a list, and the time without a byte of a watch after which it is
  // begun anew: a bookmark comes each minute.
  static constexpr Duration kPatience = std::chrono::seconds(5),
                            kSilence = std::chrono::seconds(150);
  // Gives everyone this answer from now on; empty: none.
  using Serve = std::function<void(std::optional<std::string> answer)>;

  PodsSidecar(PodsSidecarOptions options, Serve serve, const Clock& clock, Log log)
      : options_(std::move(options)),
        serve_(std::move(serve)),
        clock_(clock),
        log_(std::move(log)) {}

  // Lists the pods, and watches them until the watch ends. Returns the time from the start of this
  // round to that of the next: a second, or longer after failures.
  Duration round();

 private:
  Result<NodePods> list() const;
  // Until the API server or the silence ends it.
  Result<void> watch();
  bool take_line(std::string_view line);
  std::string target(std::string_view parameters) const;

  const PodsSidecarOptions options_;
  const Serve serve_;
  const Clock& clock_;
  const Log log_;
  PodMirror mirror_;
  ApiServerState state_;
  std::optional<Error> wrong_;  // with a line of the watch
  int failures_ = 0;
};

// Serves on threads of their own, until the process ends. Errors: those of check_options() and
// listen_at(), not_supported without libnghttp2.
Result<void> serve_pods(const PodsSidecarOptions& options, const Log& log);

}  // namespace derate::pods
