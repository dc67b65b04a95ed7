// derate status.
#include <fmt/format.h>
#include <cstdio>

#include "attribute_view.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "service/records/state_file.h"
#include "service_view.h"
#include "simulated.h"
#include "status_view.h"
#include "terminal/output.h"

namespace derate::cli {

namespace {

std::string lines_of(const std::vector<std::string>& notes) {
  std::string out;
  for (const std::string& note : notes) out += (out.empty() ? "\n" : "") + note + "\n";
  return out;
}

}  // namespace

Result<int> run_verb(const StatusOptions& options) {
  SystemClock clock;
  StatusView view(clock);
  auto gpus = TRY(view.look(options.gpus));
  mark_simulated(gpus);
  if (options.json)
    print_json("status", {{"paused", view.closed() == ClosedGpus::paused},
                          {"asleep", view.closed() == ClosedGpus::asleep},
                          {"gpus", gpus},
                          {"services", view.services()},
                          {"notes", view.notes()}});
  else
    print("{}{}{}", status_text(gpus, view.closed(), width_of_terminal()),
          options.gpus.empty() ? services_text(view.services()) + lines_of(view.notes()) : "",
          options.gpus.empty() ? nothing_governed(gpus) : "");
  return end_of_look(clock);
}

}  // namespace derate::cli
