// Completion scripts for shells, from the declaration of the command line.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace derate::cli {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace derate::cli
