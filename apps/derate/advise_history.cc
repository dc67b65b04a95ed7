// derate advise --history: what promises have come to, and what others would have.
#include <fmt/format.h>

#include <array>

#include "advise_history_view.h"
#include "api/requests.h"
#include "apps/common/open_gpus.h"
#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "history_source.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr std::array kDeltas = {0.02, 0.05, 0.08, 0.10, 0.15, 0.20, 0.30};
constexpr std::int64_t kPoints = 10'000;  // minutes of a week, nearly

}  // namespace

Result<int> advise_from_history(const AdviseOptions& options) {
  const WallTime now = SystemClock().wall_now();
  HistoryRead request{.kind = "gpu", .points = kPoints};
  request.from = TRY(moment_text("--from", options.from, now));
  request.to = TRY(moment_text("--to", options.to, now));
  // Whose clocks and which chip it is only the GPU itself can say.
  SystemClock clock;
  const OpenGpus gpus = TRY(open_gpus({.gpus = options.gpus}, clock));
  std::vector<RecommendedGpu> said;
  ProgressLine progress("GPUs");
  const Instant begin = SystemClock().now();
  for (const OpenGpu& each : gpus.gpus) {
    const Capability& capability = each.source->capability();
    request.gpus = capability.id.uuid;
    const auto answer = TRY(ask_history(request, options.file));
    const auto recommended =
        TRY(recommend(answer.series, answer.step_seconds, capability, kDeltas));
    said.push_back({capability.id, answer.from_unix_seconds, answer.to_unix_seconds, recommended});
    progress.show(said.size(), gpus.gpus.size(), SystemClock().now() - begin);
  }
  progress.clear();
  if (options.json) return print_json("advise-history", recommendation_json(said));
  print("{}", recommendation_text(said, terminal_width()));
  return 0;
}

}  // namespace derate::cli
