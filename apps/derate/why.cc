// derate why: why a GPU's clock is, or was, what it is.
#include "api/requests.h"
#include "attribute_view.h"
#include "base/json.h"
#include "command_options.h"
#include "events_view.h"
#include "history_source.h"
#include "terminal/output.h"

namespace derate::cli {

Result<int> run_verb(const WhyOptions& options) {
  const WallTime now = SystemClock().wall_now();
  WhyRead request{.gpu = options.gpu, .changes = options.changes};
  request.at = TRY(moment_text("--at", options.at, now));
  const auto answer = TRY(ask_history(request, options.file));
  if (options.json) return print_json("why", answer_json(answer));
  print("{}", why_text(answer, terminal_width()));
  return 0;
}

}  // namespace derate::cli
