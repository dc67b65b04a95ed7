// The list of the configuration's files: the main file, then those of a folder.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/config.h"

namespace derate {

inline constexpr const char* kDefaultConfig = "/etc/derate/derate.toml";

// $DERATE_CONFIG, else the default file if it is there; empty: neither.
std::string config_file();

struct ConfigSource {
  std::string file;         // empty: there is none, and the folder's alone hold
  std::string folder = {};  // its *.toml are read after the file, in the order of their names
};

// The named file, else $DERATE_CONFIG, else the default one. The default file's folder is conf.d
// beside it. Any other file's is FILE.d, so that a file that somebody names takes in nothing that
// happens to lie around.
ConfigSource config_source(const std::string& named);

// What is there of them: a folder that is not there is empty. A name that begins with a dot or does
// not end in .toml is passed over, so that an editor's and a package's leavings are no settings.
// Errors: not_found for the file, no_permission, io, bad_config for what is no file.
Result<std::vector<ConfigFile>> read_config_files(const ConfigSource& source);

}  // namespace derate
