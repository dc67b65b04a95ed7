// The view of `derate status`, read by `derate top` too: each GPU, its governor, and the reason for
// its clock.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/open_gpus.h"
#include "base/clock.h"
#include "base/result.h"

namespace derate::cli {

// Whether a daemon has closed every GPU, and why.
enum class ClosedGpus : std::uint8_t { no, paused, asleep };
// A sentence without a stop; empty: it has not.
std::string closed_text(ClosedGpus closed);

class StatusView {
 public:
  explicit StatusView(Clock& clock);

  // The GPUs that `choice` names, as an array; governors' own words first. The driver is asked only
  // where no daemon tells of all GPUs: asking wakes a GPU that sleeps.
  // Errors: those of the driver when nobody tells anything; not_found for a GPU that is not there.
  Result<nlohmann::ordered_json> look(const std::string& choice);
  ClosedGpus closed() const { return closed_; }
  // The services of daemons at the last look, as state.json has them.
  const nlohmann::ordered_json& services() const { return *services_; }
  // Sentences on the last look: rules of the configuration that match no process.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  Clock& clock_;
  std::optional<Result<OpenGpus>> real_;  // opened once
  ClosedGpus closed_ = ClosedGpus::no;
  std::shared_ptr<const nlohmann::ordered_json> services_;
  std::vector<std::string> notes_;
};

// As a table; `closed` in place of an empty one. `width`: columns of a terminal; where the table is
// wider, each GPU has two lines, its figures and the reason.
std::string status_text(const nlohmann::ordered_json& gpus, ClosedGpus closed,
                        std::optional<std::size_t> width = {});

// Of one GPU: "kept", "below for 12 s", "BROKEN for 95 s", "not known"; empty: nothing is promised.
std::string promise_text(const nlohmann::ordered_json& gpu);
// "ann" for "uid 1004", where this machine has a name for it; others as they are.
std::string who_text(const std::string& who);
// "LOST since 19:18:21: ..." of a GPU that gives no reading; empty for others.
std::string silence_text(const nlohmann::ordered_json& gpu);
// A message of the driver, what failed first: "clock cannot be set: no permission
// (nvmlDeviceSetGpuLockedClocks, NVML error 4)"; others as they are.
std::string plain_trouble(const std::string& message);
// A paragraph if none of these GPUs is governed, and how they are; else empty.
std::string nothing_governed(const nlohmann::ordered_json& gpus);
// A sentence: the command that has GPUs governed, by derated where it runs.
std::string way_to_save();

// Of one GPU: "dry run, command of uid 7, for 30 s", and why its clock is what it is.
std::string assignment_text(const nlohmann::ordered_json& gpu);
std::string why_text(const nlohmann::ordered_json& gpu);

// Warns of governors that should have told more, as the table is not all there is to know; the exit
// code.
int end_of_look(Clock& clock);

}  // namespace derate::cli
