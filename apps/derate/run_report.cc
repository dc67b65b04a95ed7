#include "run_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "api/requests.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/write_now.h"
#include "run_command.h"
#include "run_engine.h"
#include "service/transport/signals.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string text_of(const RunAccount& account) {
  std::string out = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                                account.exit_code, duration_text(account.time));
  for (const GpuAccount& each : account.gpus) out += summary_text(each.summary, each.figures);
  if (account.engine) out += engine_sentence(*account.engine) + "\n";
  for (const std::string& note : account.notes) out += note + "\n";
  if (account.tuned != nullptr) return out + tuning_text(*account.tuned, account.now);
  return out + closing_sentence(account.gpus) + "\n";
}

Json json_of(const RunAccount& account, const std::vector<std::string>& command) {
  Json gpus = Json::array();
  for (const GpuAccount& each : account.gpus)
    gpus.push_back(summary_json(each.summary, each.figures));
  mark_simulated(gpus);
  Json out = {{"schema", account.tuned != nullptr ? "derate/tune-run/1" : "derate/run/1"},
              {"command", command},
              {"exit_code", account.exit_code},
              {"time_seconds", seconds(account.time)},
              {"gpus", std::move(gpus)}};
  if (account.engine) out["engine"] = answer_json(ServicesAnswer{{*account.engine}})["services"][0];
  if (!account.notes.empty()) out["notes"] = account.notes;
  if (account.tuned != nullptr)
    out["tuning"] = tuning_json(*account.tuned, account.now);
  else
    out["sentence"] = closing_sentence(account.gpus);
  return out;
}

// Writes to standard error only while a pipe or a terminal has room, so that `goes_on` is called
// meanwhile.
Result<void> show(const std::string& text, const std::function<bool()>& goes_on) {
  SystemClock clock;
  if (write_while(STDERR_FILENO, shown_text(text, false), clock, goes_on)) return {};
  return Error{Errc::interrupted, "the account was not taken: nobody reads standard error"};
}

}  // namespace

Result<void> write_account(const RunAccount& account, const RunOptions& options,
                           std::optional<TextFile>& file, const std::function<bool()>& goes_on) {
  const std::string text =
      options.json ? json_text(json_of(account, options.command), 2) + "\n" : text_of(account);
  if (file) {
    auto written = file->write(text);
    if (!written.ok()) (void)show(text_of(account), goes_on).ok();  // the file has no account
    return written;
  }
  return show(options.json ? printing_json(text) : text, goes_on);
}

std::function<bool()> patience_for_reader(std::function<void()> alive) {
  clear_stop_signal();  // a signal that came while the command ran
  const auto clock = std::make_shared<SystemClock>();
  const Instant end = clock->now() + std::chrono::minutes(1);
  return [clock, end, alive = std::move(alive)] {
    alive();
    return clock->now() < end && take_stop_signal() == 0;
  };
}

}  // namespace derate::cli
