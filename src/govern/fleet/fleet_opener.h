// Opens GPUs without waiting for the driver: all of them at the start, and from time to time those
// that were not there.
#pragma once

#include <optional>

#include "base/clock.h"
#include "govern/fleet/open_gpu.h"

namespace derate {

class FleetOpener {
 public:
  static constexpr Duration kRescanEvery = std::chrono::seconds(30);

  // `open` empty: GPUs come from elsewhere, and none is looked for. `clock` outlives it.
  FleetOpener(OpenFleet open, const Clock& clock) : open_(std::move(open)), clock_(clock) {}

  void begin();
  bool under_way() const { return opening_ != nullptr; }
  // The outcome of begin(), once.
  std::optional<Result<OpenGpus>> poll();
  // All GPUs that can be opened now, where some are `missing` or could not be opened when last
  // tried, and it is time.
  std::optional<OpenGpus> rescan(bool missing);
  // A GPU that no longer answers, from its UUID. Null where none can be opened.
  OpeningPoll reopen(const std::string& uuid) const { return open_ ? open_(uuid) : nullptr; }
  // The GPUs are closed: what was begun is not looked at any more.
  void stop() { rescan_ = nullptr; }

 private:
  void remember_failures(const OpenGpus& opened) { some_failed_ = !opened.notes.empty(); }

  OpenFleet open_;
  const Clock& clock_;
  OpeningPoll opening_, rescan_;
  bool some_failed_ = false;
  std::optional<Instant> rescan_at_;
};

}  // namespace derate
