// Chooses the GPUs of a command that is started here, by option or by the command's environment,
// and names them for another process.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "command_options.h"

namespace derate::cli {

struct ChosenGpus {
  // In open_gpus()'s format; UUIDs if the environment names the GPUs. Empty text: all GPUs that
  // this process sees. nullopt: neither an option nor the environment names any.
  std::optional<std::string> list;
  std::string none;                    // why the command sees no GPU; else empty
  std::shared_ptr<const void> driver;  // open while this lives (SeenGpus)
};

// The GPUs of the options, else of the command's environment (integ/own_gpus.h), which names
// hardware alone. `alive` is called several times a second while the driver does not answer.
// Errors: those of own_gpus().
Result<ChosenGpus> chosen_gpus(
    const GpuChoice& choice, const SimCliOptions& sim = {},
    const std::function<void()>& alive = [] {});

// For a UUID or bus id that no GPU of this process's view has. An index of no such GPU is always
// refused.
enum class ForeignName : std::uint8_t { refused, passed_on };

// The same GPUs as UUIDs, for a process with other indices. A MIG instance becomes its GPU. Empty:
// all. If this process has no driver, or only whole UUIDs and a driver that does not answer, the
// names are not changed. Errors: those of select_gpus(); gpu_stuck if the driver, or a GPU that
// could be the named one, does not answer.
Result<std::string> gpus_by_uuid(
    const std::string& choice, ForeignName foreign = ForeignName::refused,
    const std::function<void()>& alive = [] {});

// The UUID of the only GPU that this process sees; empty if it sees several or none.
std::string only_gpu_of_view();

}  // namespace derate::cli
