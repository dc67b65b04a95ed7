#include "config/config_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/text.h"

namespace derate {
namespace {

bool is_drop_in(const std::string& name) { return name.ends_with(".toml") && name[0] != '.'; }

Result<std::vector<std::string>> drop_ins(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> out;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error))
    if (const std::string name = at->path().filename().string(); is_drop_in(name))
      out.push_back(name);
  if (error && error != std::errc::no_such_file_or_directory)
    return Error{error == std::errc::permission_denied ? Errc::no_permission : Errc::io,
                 fmt::format("cannot read the folder '{}': {}", folder, error.message())};
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

std::string config_file() {
  const char* named = std::getenv("DERATE_CONFIG");
  if (named != nullptr && *named != '\0') return named;
  return ::access(kDefaultConfig, F_OK) == 0 ? kDefaultConfig : "";
}

ConfigSource config_source(const std::string& named) {
  ConfigSource out{.file = named.empty() ? config_file() : named};
  const bool is_default = out.file.empty() || out.file == kDefaultConfig;
  out.folder = is_default ? std::filesystem::path(kDefaultConfig).parent_path().string() + "/conf.d"
                          : out.file + ".d";
  return out;
}

Result<std::vector<ConfigFile>> read_config_files(const ConfigSource& source) {
  std::vector<ConfigFile> out;
  if (!source.file.empty()) {
    const std::string text = TRY(read_file(source.file));
    out.push_back({source.file, text});
  }
  for (const std::string& name : TRY(drop_ins(source.folder))) {
    const std::string path = source.folder + "/" + name;
    std::error_code error;
    // Nothing that could keep its reader waiting.
    if (!std::filesystem::is_regular_file(path, error))
      return Error{Errc::bad_config, fmt::format("{}: is no file", path)};
    const std::string text = TRY(read_file(path));
    out.push_back({path, text});
  }
  return out;
}

}  // namespace derate
