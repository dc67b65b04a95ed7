// derate energy [-- CMD]: measures what GPUs use while CMD runs, or until Ctrl-C. Reads only.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <vector>

#include "apps/common/open_gpus.h"
#include "base/child_process.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"
#include "command_options.h"
#include "config/paths.h"
#include "energy_view.h"
#include "govern/records_file.h"
#include "gpu_choice.h"
#include "measuring.h"
#include "service/answers/energy_service.h"
#include "service/answers/request_lines.h"
#include "service/transport/listen.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

Result<void> report(const EnergyOptions& options, const EnergyAccount& account,
                    std::optional<TextFile>& file) {
  const std::string text =
      options.json ? printing_json(json_text(with_schema("energy", energy_json(account)), 2)) + "\n"
                   : energy_text(account);
  if (file) {
    auto written = file->write(text);
    if (!written.ok()) write_text(stderr, text);  // better seen than lost
    return written;
  }
  // Standard output is the command's, if there is one.
  if (options.command.empty())
    print("{}", text);
  else
    write_text(stderr, text);
  return {};
}

void measure_alone(Measuring& measuring, Duration time) {
  const Instant begin = measuring.clock().now();
  const Instant end = time == Duration::max() ? Instant::max() : begin + time;
  while (stop_signal() == 0 && measuring.clock().now() < end)
    if (measuring.listen_until_next(end)) measuring.read(false);
}

Result<int> measure(const EnergyOptions& options) {
  const Duration time = options.time_s ? from_seconds(*options.time_s) : Duration::max();
  SystemClock clock;
  GpuRequest request{.sim = options.sim, .patience = Patience::of_loop};
  ChosenGpus chosen = TRY(chosen_gpus(options.gpus, options.sim));
  const bool blind = !chosen.none.empty() && !options.command.empty();
  if (!chosen.none.empty() && !blind) return Error{Errc::not_found, chosen.none};
  if (blind) warn("derate: {}; the command runs, and nothing is measured\n", chosen.none);
  request.gpus = chosen.list.value_or("");
  Measuring measuring(options, blind ? OpenGpus{} : TRY(open_gpus(request, clock)));
  chosen.driver.reset();
  TRY(measuring.prepare());
  std::optional<TextFile> file;
  if (!options.report.empty()) file = TRY(TextFile::create(options.report));
  watch_signals();
  measuring.begin();
  std::optional<int> code;
  if (options.command.empty()) {
    measure_alone(measuring, time);
  } else {
    auto started = TRY(start_measured(options.command, options.as_root, measuring));
    if (!started.child) {
      warn("derate: {}\n", started.message);
      return started.exit_code;
    }
    code = measure_until_end(measuring, *started.child).exit_code;
  }
  measuring.end();
  EnergyAccount account = measuring.account();
  if (blind) account.troubles.push_back(chosen.none);
  account.exit_code = code;
  auto reported = report(options, account, file);
  // Nothing costs the command its exit code.
  if (code && !reported.ok()) warn("derate: {}\n", reported.error().message);
  if (!code) TRY(std::move(reported));
  return code.value_or(exit_code::kOk);
}

}  // namespace

Result<int> run_verb(const EnergyOptions& options) {
  if (!options.command.empty()) {
    if (const auto wrong = cannot_start(options.command.front())) {
      warn("derate: {}\n", wrong->message);
      return wrong->exit_code;
    }
  }
  auto code = measure(options);
  if (code.ok() || options.command.empty()) return code;
  warn("derate: {}\n", code.error().message);
  return exit_code::kRunFailed;
}

}  // namespace derate::cli
