// The GPUs of a command, measured while it runs: what `derate energy` and `derate compare` share.
// Reads only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/open_gpus.h"
#include "base/child_process.h"
#include "base/text_file.h"
#include "command_options.h"
#include "energy_view.h"
#include "service/answers/command_windows.h"

namespace derate::cli {

// Measures, and answers what the command asks.
class Measuring {
 public:
  Measuring(const EnergyOptions& options, OpenGpus gpus)
      : options_(options),
        gpus_(std::move(gpus)),
        programs_(clock_, std::max<Duration>(std::chrono::seconds(2),
                                             from_seconds(2 * options.interval_s))) {
    std::vector<GpuId> ids;
    for (const OpenGpu& gpu : gpus_.gpus) ids.push_back(gpu.source->capability().id);
    service_.here(ids);
    failed_.resize(ids.size());
    service_.on_ended([this](const WindowEnergy& window) {
      windows_.add(window);
      log(window);
    });
  }

  // Opens what is written and heard before anything is measured. Errors: those of the log.
  Result<void> prepare();
  void begin();
  // One reading of all GPUs; `exact` reads the counter, too.
  void read(bool exact);
  // Takes in what the command says until the next reading; false when a signal came.
  bool listen_until_next(Instant at_the_latest = Instant::max());
  void end();

  SystemClock& clock() { return clock_; }
  OpenGpus& gpus() { return gpus_; }
  const CommandWindows& programs() const { return programs_; }
  EnergyAccount account() const;

 private:
  void serve();
  void log(const WindowEnergy& window);

  struct Failed {
    std::size_t count = 0;
    std::string last;
  };
  const EnergyOptions& options_;
  SystemClock clock_;
  OpenGpus gpus_;
  CommandWindows programs_;
  EnergyService& service_ = programs_.service();
  std::optional<TextFile> log_file_;
  bool log_failed_ = false;
  std::vector<Failed> failed_;  // readings of each GPU
  Instant begun_{}, next_{}, next_counter_{};
  WindowEnergy total_;
  WindowSums windows_;
};

struct MeasuredEnd {
  int exit_code = 0;
  bool stopped = false;  // a signal came that ends programs
};
// Until the command ends. Signals go on to it as in `derate run`.
MeasuredEnd measure_until_end(Measuring& measuring, Child& child);
// As the user behind sudo unless the options say otherwise; its windows come to `measuring`.
Result<Child::Started> start_measured(const std::vector<std::string>& command, bool as_root,
                                      const Measuring& measuring, ChildOptions how = {});

}  // namespace derate::cli
