// derate-pods: the kubelet's Pods API for kubelets that do not have it, from the API server. It has
// no token, no GPU and no network.
#include <string>
#include <vector>

#include "base/exit_code.h"
#include "base/journald.h"
#include "base/log.h"
#include "base/outermost.h"
#include "integ/pod_wish.h"
#include "pods_sidecar.h"
#include "service/loop/event_loop.h"
#include "service/loop/run_until_stopped.h"
#include "service/transport/signals.h"
#include "terminal/program_options.h"

namespace derate::pods {
namespace {

ProgramUsage usage_of(PodsSidecarOptions& options) {
  std::vector<ProgramOption> all = {
      {"--node", "NAME", "The node whose pods are served; required", &options.node},
      {"--api-server", "FILE", "The socket of `kubectl proxy --unix-socket=FILE`; required",
       &options.api_server},
      {"--socket", "FILE", "Where the pods are served; required", &options.socket},
      {"--prefix", "NAME", "Serve the annotations NAME/... of pods (" + options.prefix + ")",
       &options.prefix},
  };
  return {.name = "derate-pods",
          .version = DERATE_VERSION,
          .summary =
              "Serves the pods of a Kubernetes node to derated, for kubelets without the "
              "Pods API: it requests them from the API server through `kubectl proxy`. See "
              "derate-pods(8).",
          .footer =
              "Example:\n"
              "  derate-pods --node gpu7 --api-server /run/proxy/api.sock \\\n"
              "              --socket /run/derate-pods/pods.sock\n\n"
              "derated's setting kubernetes.pods_socket names the same socket. SIGTERM and "
              "SIGINT end it.\n",
          .options = std::move(all)};
}

// The threads of serve_pods() work, and the loop has the signals.
Result<void> run(const PodsSidecarOptions& options, const Log& log) {
  SystemClock clock;
  block_signals(kStopSignals);
  block_signals(kIgnoredSignals);
  const auto loop = TRY(EventLoop::create());
  TRY(serve_pods(options, log));
  return run_until_stopped(*loop, clock);
}

int main_of(int argc, char** argv) {
  PodsSidecarOptions options{.prefix = kPodPrefix};
  if (const auto end = read_options(usage_of(options), argc, argv)) return *end;
  const Log log = program_log("derate-pods", journald_writer("derate-pods", journald_socket()));
  const auto done = run(options, log);
  if (done.ok()) return exit_code::kOk;
  log.error(done.error().message);
  return exit_code_of(done.error().code);
}

}  // namespace
}  // namespace derate::pods

int main(int argc, char** argv) {
  derate::open_standard_files();
  derate::ignore_signals_of_writes();
  return derate::run_outermost("derate-pods", [&] { return derate::pods::main_of(argc, argv); });
}
