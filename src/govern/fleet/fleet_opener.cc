#include "govern/fleet/fleet_opener.h"

namespace derate {

void FleetOpener::begin() {
  if (open_) opening_ = open_("");
}

std::optional<Result<OpenGpus>> FleetOpener::poll() {
  if (!opening_) return std::nullopt;
  auto out = opening_();
  if (!out) return std::nullopt;
  opening_ = nullptr;
  if (out->ok()) remember_failures(**out);
  return out;
}

std::optional<OpenGpus> FleetOpener::rescan(bool missing) {
  const Instant now = clock_.now();
  if (!open_ || (!missing && !some_failed_ && !rescan_)) {
    rescan_at_.reset();
    return std::nullopt;
  }
  if (!rescan_) {
    if (!rescan_at_) rescan_at_ = now + kRescanEvery;
    if (now < *rescan_at_) return std::nullopt;
    rescan_ = open_("");
  }
  auto opened = rescan_();
  if (!opened) return std::nullopt;
  rescan_ = nullptr;
  rescan_at_ = now + kRescanEvery;
  if (!opened->ok()) return std::nullopt;
  remember_failures(**opened);
  return **std::move(opened);
}

}  // namespace derate
