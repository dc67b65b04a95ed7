#include "base/own_files.h"

#include <fmt/format.h>

#include <filesystem>

namespace derate {
namespace {

namespace fs = std::filesystem;

fs::path own_folder() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/exe", ignored).parent_path();
}

}  // namespace

Result<std::string> own_program(const std::string& name) {
  std::error_code ignored;
  for (const fs::path& at : {own_folder() / name, own_folder().parent_path() / "sbin" / name})
    if (fs::exists(at, ignored)) return at.string();
  return Error{Errc::not_found, fmt::format("'{}' is neither in '{}' nor in ../sbin of it", name,
                                            own_folder().string())};
}

Result<std::string> own_progress_library() {
  std::error_code ignored;
  for (const fs::path& at : {own_folder() / "progress", own_folder().parent_path() / "lib/derate"})
    if (fs::exists(at / "libderate_progress.so", ignored))
      return (at / "libderate_progress.so").string();
  return Error{Errc::not_found,
               "libderate_progress.so is neither beside this program nor in ../lib/derate"};
}

Result<std::string> own_nvml_library() {
  std::error_code ignored;
  for (const fs::path& at : {own_folder() / "fakenvml", own_folder().parent_path() / "lib/derate"})
    if (fs::exists(at / "libnvidia-ml.so.1", ignored)) return (at / "libnvidia-ml.so.1").string();
  return Error{Errc::not_found,
               "libnvidia-ml.so.1 of the simulation is neither beside this program nor in "
               "../lib/derate"};
}

Result<std::string> own_dcgm_library() {
  std::error_code ignored;
  for (const fs::path& at :
       {own_folder() / "fakedcgm/4", own_folder().parent_path() / "lib/derate"})
    if (fs::exists(at / "libdcgm.so.4", ignored)) return (at / "libdcgm.so.4").string();
  return Error{Errc::not_found,
               "libdcgm.so.4 of the simulation is neither next to this program nor in "
               "../lib/derate"};
}

}  // namespace derate
