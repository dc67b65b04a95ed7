// The derate command: arguments to a verb, its failure to one line and an exit code.
#include <fmt/format.h>

#include <cstdio>

#include "base/exit_code.h"
#include "command_line.h"
#include "verbs.h"

namespace derate::cli {

Result<int> run_verb(const CompletionOptions& options) {
  fmt::print("{}", TRY(completion_script(options.shell)));
  return 0;
}

Result<int> run_verb(const ManualOptions&) {
  fmt::print("{}", manual_page());
  return 0;
}

}  // namespace derate::cli

int main(int argc, char** argv) {
  using namespace derate;
  const auto parsed = cli::parse_command_line(argc, argv);
  if (const auto* exit = std::get_if<cli::Exit>(&parsed)) return exit->code;
  const auto code = std::visit([](const auto& options) { return cli::run_verb(options); },
                               std::get<cli::Verb>(parsed));
  if (code.ok()) return *code;
  fmt::print(stderr, "derate: {}\n", code.error().message);
  return exit_code_of(code.error().code);
}
