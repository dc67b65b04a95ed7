// The choice of the GPUs that a command started here works on, by option or by the command's
// environment, and their names for another process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "command_options.h"

namespace derate::cli {

struct ChosenGpus {
  // As open_gpus() takes it; UUIDs where the environment says which. Empty text: all GPUs of this
  // process's view. Empty: nothing says which.
  std::optional<std::string> list;
  std::string none;                    // a sentence: the command sees no GPU; else empty
  std::shared_ptr<const void> driver;  // open while this lives (SeenGpus)
};

// The ones that were named, or that are the command's own by its environment (integ/own_gpus.h),
// which names hardware alone. `alive` is called now and then while the driver is waited for.
// Errors: those of own_gpus().
Result<ChosenGpus> chosen_gpus(
    const GpuChoice& choice, const SimCliOptions& sim = {},
    const std::function<void()>& alive = [] {});

// A UUID or bus id that is none of a GPU of this process's view. A number is always refused then.
enum class ForeignName : std::uint8_t { refused, passed_on };

// The same choice by UUIDs, for a process that numbers GPUs by a view of its own; a MIG instance
// stands for its GPU. Empty: all. Without a driver in this process the names stay as they are.
// Errors: those of select_gpus(); gpu_stuck where the driver, or a GPU that can be meant, does not
// answer.
Result<std::string> gpus_by_uuid(
    const std::string& choice, ForeignName foreign = ForeignName::refused,
    const std::function<void()>& alive = [] {});

// The UUID of the only GPU of this process's view; empty: there are several, or none is known.
std::string only_gpu_of_view();

}  // namespace derate::cli
