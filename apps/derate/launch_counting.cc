#include "launch_counting.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "base/own_files.h"

namespace derate::cli {
namespace {

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? std::string_view(value) : std::string_view();
}

// Starts programs in a root file system of their own with our environment: there the loader of each
// would complain that the library is missing. docker, podman and the like hand on no environment.
bool keeps_environment_in_container(const std::vector<std::string>& command) {
  if (command.empty()) return false;
  const auto name = std::filesystem::path(command.front()).filename();
  return name == "apptainer" || name == "singularity" || name == "ch-run" || name == "chroot";
}

}  // namespace

void count_launches(const std::vector<std::string>& command, std::vector<std::string>& environment,
                    const Log& log) {
  const std::string_view said = variable("DERATE_PROGRESS");
  if (said == "off" || said == "0") return;
  if (keeps_environment_in_container(command))
    return log.warning("launches are not counted: " + command.front() +
                       " does not have libderate_progress.so in its container (docs/progress.md)");
  const auto library = own_progress_library();
  if (!library.ok()) return log.warning("launches are not counted: " + library.error().message);
  if (library->find_first_of(" :") != std::string::npos)
    return log.warning(
        "launches are not counted: LD_PRELOAD can name no path with a space or ':' "
        "in it, as '" +
        *library + "'");
  std::string preload = "LD_PRELOAD=" + *library;
  if (const auto ours = variable("LD_PRELOAD"); !ours.empty()) preload.append(":").append(ours);
  environment.push_back(std::move(preload));
  // A program under gcc's AddressSanitizer would not begin beside a library that is loaded first.
  std::string sanitizer = "ASAN_OPTIONS=";
  const auto ours = variable("ASAN_OPTIONS");
  if (ours.find("verify_asan_link_order") != std::string_view::npos) return;
  if (!ours.empty()) sanitizer.append(ours).append(":");
  environment.push_back(sanitizer + "verify_asan_link_order=0");
}

}  // namespace derate::cli
