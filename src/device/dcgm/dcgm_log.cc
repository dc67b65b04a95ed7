#include "device/dcgm/dcgm_log.h"

#include <fmt/format.h>

#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

// An engine that is started again is back within 5 s. A shared one is left each 10 minutes, for
// twice the other program's period: 30 s with dcgm-exporter.
constexpr Duration kFailsAfter = 10s, kFailsAfterShared = 2min;

}  // namespace

void DcgmLog::works(Seen& seen, const std::string& text, LogFields fields) {
  seen.fails_since.reset();
  if (seen.works == true) return;
  seen.works = true;
  log_.info(text, std::move(fields));
}

void DcgmLog::fails(Seen& seen, Instant now, const std::string& text, LogFields fields) {
  if (!seen.fails_since) seen.fails_since = now;
  const bool shared = use_ == DcgmUse::shared;
  const bool lasts = now - *seen.fails_since >= (shared ? kFailsAfterShared : kFailsAfter);
  if (seen.works == false || !lasts) return;
  const LogLevel level = shared && !seen.works ? LogLevel::debug : LogLevel::warning;
  seen.works = false;
  log_.write({level, text, std::move(fields), LogPlace::here()});
}

void DcgmLog::note(const DcgmState& state, Instant now) {
  silent_ = false;
  if (!state.engine.empty()) works(engine_, "DCGM: connected to host engine " + state.engine);
  if (state.engine.empty() && !state.problem.empty()) fails(engine_, now, "DCGM: " + state.problem);
  // A GPU that nobody needs, as an idle one, has neither news nor a problem.
  for (const auto& [part, news] : state.news)
    if (!part.second)
      works(gpus_[part.first], "DCGM: the host engine measures the GPU's activity",
            {{"gpu", part.first}});
  for (auto& [uuid, seen] : gpus_)
    if (!state.gpu_problems.contains(uuid)) seen.fails_since.reset();
  for (const auto& [uuid, problem] : state.gpu_problems)
    fails(gpus_[uuid], now, "DCGM: no activity: " + problem, {{"gpu", uuid}});
}

void DcgmLog::note_silence(Duration silence) {
  if (silent_) return;
  silent_ = true;
  log_.warning(
      fmt::format("DCGM: the host engine has not answered for {:.0f} s", seconds(silence)));
}

}  // namespace derate
