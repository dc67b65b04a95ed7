#include "service/records/health.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace derate {
namespace {

std::string name_of(const GpuId& id) { return fmt::format("GPU {} ({})", id.index, id.uuid); }

// Only totals know that a GPU is lost.
std::string lost_text(const GpuSnapshot& gpu) {
  const std::string& why = gpu.record.sample_error;
  return fmt::format("{} {}{}{}", name_of(gpu.id), gpu.totals->stuck ? "is stuck" : "is lost",
                     why.empty() ? "" : ": ", why);
}

std::string stale_text(const GpuSnapshot& gpu, Instant now) {
  const auto at = last_sampled(gpu);
  std::string out = name_of(gpu.id) + ": ";
  out += at ? fmt::format("the last sample is {:.1f} s old", seconds(now - *at))
            : std::string("nothing has been read yet");
  if (!gpu.record.sample_error.empty()) out += ": " + gpu.record.sample_error;
  return out;
}

}  // namespace

Health livez(const Snapshot& snapshot, Instant now) {
  if (!snapshot.time) return {false, "no round of the loop has ended yet"};
  const Duration age = now - *snapshot.time;
  if (age > kLiveFor)
    return {false,
            fmt::format("the loop does not turn: its last round was {:.1f} s ago", seconds(age))};
  return {true, "the loop turns"};
}

Health readyz(const Snapshot& snapshot, Instant now) {
  if (Health alive = livez(snapshot, now); !alive.good) return alive;
  if (snapshot.paused.value_or(false))
    return {false, "paused: the GPUs are given back and closed until `derate resume`"};
  if (snapshot.asleep) return {true, "the GPUs are asleep, and closed until somebody uses them"};
  if (snapshot.gpus.empty())
    return {false, snapshot.away.empty() ? "the GPUs are not open yet" : "no GPU is open"};
  std::vector<std::string> lost, stale;
  for (const GpuSnapshot& gpu : snapshot.gpus) {
    const auto at = last_sampled(gpu);
    if (gpu.totals && gpu.totals->lost)
      lost.push_back(lost_text(gpu));
    else if (!at || now - *at > stale_after(gpu))
      stale.push_back(stale_text(gpu, now));
  }
  const bool all_lost = lost.size() == snapshot.gpus.size();
  for (const AwayGpu& gpu : snapshot.away)
    lost.push_back(name_of(gpu.id) + " is not here any more");
  const std::string of_lost = fmt::format("{}", fmt::join(lost, "; "));
  if (all_lost) return {false, "all GPUs are lost: " + of_lost};
  if (!stale.empty())
    return {false, fmt::format("samples are stale: {}{}{}", fmt::join(stale, "; "),
                               lost.empty() ? "" : "; ", of_lost)};
  const std::string read =
      lost.empty() ? "all GPUs are read" : "the other GPUs are read; " + of_lost;
  return {true, read + (snapshot.trouble.empty() ? "" : "; " + snapshot.trouble)};
}

}  // namespace derate
