// derate why: why a GPU's clock is, or was, what it is.
#include <fmt/format.h>

#include <algorithm>

#include "api/requests.h"
#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "events_view.h"
#include "history_source.h"
#include "service/records/state_file.h"
#include "terminal/output.h"

namespace derate::cli {

namespace {

// That there are more GPUs than the one that was not named.
std::string others_text() {
  SystemClock clock;
  std::size_t gpus = 0;
  for (const Json& state : read_states(clock)) gpus = std::max(gpus, state["gpus"].size());
  return gpus < 2
             ? ""
             : fmt::format("\nThis is GPU 0 of {}: -i names another, `derate status` has all.\n",
                           gpus);
}

}  // namespace

Result<int> run_verb(const WhyOptions& options) {
  const WallTime now = SystemClock().wall_now();
  WhyRead request{.gpu = options.gpu.empty() ? "0" : options.gpu, .changes = options.changes};
  request.at = TRY(moment_text("--at", options.at, now));
  const auto answer = TRY(ask_history(request, options.file));
  if (options.json) return print_json("why", answer_json(answer));
  print("{}", why_text(answer, terminal_width()));
  if (options.gpu.empty()) print("{}", others_text());
  return 0;
}

}  // namespace derate::cli
