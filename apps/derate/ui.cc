// derate ui: the page, served by a derate-agent of the user's own.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/own_files.h"
#include "command_options.h"
#include "service/http/api_call.h"

namespace derate::cli {
namespace {

// Where there is a display to open it on. Root's browser is nobody's.
bool can_open() {
  if (::geteuid() == 0) return false;
  return std::getenv("DISPLAY") != nullptr || std::getenv("WAYLAND_DISPLAY") != nullptr;
}

}  // namespace

Result<int> run_verb(const UiOptions& options) {
  // Without a daemon the page would be empty, and nobody would know why.
  TRY(find_api());
  const std::string program = TRY(own_program("derate-agent"));
  std::vector<std::string> words{program, "--page", "--listen", options.listen};
  if (!options.no_open && can_open()) words.emplace_back("--open");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  return Error{Errc::io, fmt::format("cannot run '{}': {}", program, std::strerror(errno))};
}

}  // namespace derate::cli
