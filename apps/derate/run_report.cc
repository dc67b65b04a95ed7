#include "run_report.h"

#include <fmt/format.h>

#include "base/json.h"
#include "run_command.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string text_of(const RunAccount& account) {
  std::string out = fmt::format("\nderate: the command ended with exit code {} after {}\n",
                                account.exit_code, duration_text(account.time));
  for (const GpuAccount& each : account.gpus) out += summary_text(each.summary, each.figures);
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
  if (!account.notes.empty()) out["notes"] = account.notes;
  if (account.tuned != nullptr)
    out["tuning"] = tuning_json(*account.tuned, account.now);
  else
    out["sentence"] = closing_sentence(account.gpus);
  return out;
}

}  // namespace

Result<void> write_account(const RunAccount& account, const RunOptions& options,
                           std::optional<TextFile>& file) {
  const std::string text =
      options.json ? json_text(json_of(account, options.command), 2) + "\n" : text_of(account);
  if (file) {
    auto written = file->write(text);
    if (!written.ok()) write_text(stderr, text_of(account));  // better seen than lost
    return written;
  }
  write_text(stderr, options.json ? printing_json(text) : text);
  return {};
}

}  // namespace derate::cli
