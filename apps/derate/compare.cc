// derate compare -- A --vs B: runs two commands in turn and says how much less energy, time and
// power the second takes. It only reads; `derate run` below it governs, where policies are
// compared.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/own_files.h"
#include "base/printing.h"
#include "base/text.h"
#include "command_options.h"
#include "compare/paired_picture.h"
#include "compare_sides.h"
#include "compare_view.h"
#include "gpu_choice.h"
#include "measuring.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// Of all GPUs together. Empty: of one it is not known.
std::optional<Joules> energy_of(const WindowEnergy& window) {
  std::optional<Joules> sum = Joules(0);
  for (const GpuEnergy& gpu : window.gpus)
    sum = sum && gpu.energy ? std::optional(*sum + *gpu.energy) : std::nullopt;
  return window.gpus.empty() ? std::nullopt : sum;
}

class Comparing {
 public:
  Comparing(const CompareOptions& options, CompareSides sides, OpenGpus gpus)
      : options_(options),
        sides_(std::move(sides)),
        energy_{.gpus = options.gpus, .interval_s = options.interval_s, .command = sides_.a},
        measuring_(energy_, std::move(gpus)) {}

  Result<void> prepare() { return measuring_.prepare(); }
  // Runs pairs until they are enough. Errors: not_found for a command that cannot run; the exit
  // code of a run that failed.
  Result<void> run();
  CompareAccount account() const;

 private:
  Result<RunFigures> run_once(bool is_b);
  Result<RunPair> run_pair(bool b_first);
  void show_progress(Duration elapsed) const;
  bool is_stopped() const { return stopped_ || stop_signal() != 0; }

  const CompareOptions& options_;
  const CompareSides sides_;
  const EnergyOptions energy_;
  Measuring measuring_;
  std::vector<RunPair> pairs_;
  CompareEnd end_ = CompareEnd::spent;
  bool stopped_ = false;  // by a signal that a command got
};

Result<RunFigures> Comparing::run_once(bool is_b) {
  const std::vector<std::string>& shown = is_b ? sides_.shown_b : sides_.shown_a;
  ChildOptions how;
  if (!options_.show_output) how.output = how.errors = "/dev/null";
  measuring_.begin();
  auto started = TRY(start_measured(is_b ? sides_.b : sides_.a, options_.as_root || sides_.governs,
                                    measuring_, std::move(how)));
  if (!started.child) return Error{Errc::not_found, started.message};
  const MeasuredEnd end = measure_until_end(measuring_, *started.child);
  measuring_.end();
  const WindowEnergy total = measuring_.account().total;
  stopped_ = stopped_ || end.stopped;
  if (end.exit_code != 0 && !is_stopped())
    return Error{Errc::query_failed,
                 fmt::format("{} ('{}') ended with exit code {}: nothing is compared{}",
                             is_b ? "B" : "A", words_text(shown), end.exit_code,
                             options_.show_output ? "" : "; --show-output shows what it prints")};
  return RunFigures{total.time, energy_of(total)};
}

Result<RunPair> Comparing::run_pair(bool b_first) {
  RunPair out;
  for (const bool is_b : {b_first, !b_first}) {
    (is_b ? out.b : out.a) = TRY(run_once(is_b));
    if (is_stopped()) break;
  }
  return out;
}

void Comparing::show_progress(Duration elapsed) const {
  if (::isatty(STDERR_FILENO) == 0) return;
  const auto widest = widest_share(compare_runs(pairs_));
  const auto left = static_cast<std::size_t>(options_.pairs) - pairs_.size();
  warn("derate: {} pairs; {}; at most {} left\n", pairs_.size(),
       widest ? fmt::format("known within {}", percent_text(*widest)) : "not known yet",
       span_text(elapsed / static_cast<int>(pairs_.size()) * static_cast<int>(left)));
}

Result<void> Comparing::run() {
  for (int i = 0; i < options_.warm_up && !is_stopped(); ++i) TRY(run_pair(false));
  const Instant begin = measuring_.clock().now();
  while (!is_stopped() && pairs_.size() < static_cast<std::size_t>(options_.pairs)) {
    const RunPair pair = TRY(run_pair(b_runs_first(pairs_.size())));
    if (is_stopped()) break;
    pairs_.push_back(pair);
    if (is_narrow(compare_runs(pairs_), options_.precision)) {
      end_ = CompareEnd::narrow;
      return {};
    }
    show_progress(measuring_.clock().now() - begin);
  }
  if (is_stopped()) end_ = CompareEnd::signal;
  return {};
}

CompareAccount Comparing::account() const {
  const EnergyAccount energy = measuring_.account();
  return {.a = sides_.shown_a,
          .b = sides_.shown_b,
          .gpus = energy.gpus,
          .pairs = pairs_,
          .precision = options_.precision,
          .end = end_,
          .troubles = energy.troubles};
}

}  // namespace

Result<int> run_verb(const CompareOptions& options) {
  TRY(compare_sides(options, "derate", ""));  // before a driver is loaded
  SystemClock clock;
  ChosenGpus chosen = TRY(chosen_gpus(options.gpus, options.sim));
  if (!chosen.none.empty()) return Error{Errc::not_found, chosen.none};
  const GpuRequest request{
      .gpus = chosen.list.value_or(""), .sim = options.sim, .patience = Patience::of_loop};
  CompareSides sides =
      TRY(compare_sides(options, TRY(own_program("derate")), chosen.list.value_or("")));
  Comparing comparing(options, std::move(sides), TRY(open_gpus(request, clock)));
  chosen.driver.reset();
  std::optional<TextFile> csv, svg;
  if (!options.csv.empty()) csv = TRY(TextFile::create(options.csv));
  if (!options.svg.empty()) svg = TRY(TextFile::create(options.svg));
  TRY(comparing.prepare());
  watch_signals();
  TRY(comparing.run());
  const CompareAccount account = comparing.account();
  if (csv) TRY(csv->write(compare_csv(account)));
  if (svg)
    TRY(svg->write(
        comparison_picture(account.pairs, words_text(account.a), words_text(account.b))));
  if (options.json)
    print("{}\n", printing_json(json_text(with_schema("compare", compare_json(account)), 2)));
  else
    print("{}", compare_text(account));
  return exit_code::kOk;
}

}  // namespace derate::cli
