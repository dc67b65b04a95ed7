// The derate command: arguments to a verb, its failure to one line and an exit code.
#include <fmt/format.h>

#include <cstdio>

#include "base/exit_code.h"
#include "base/outermost.h"
#include "command_line.h"
#include "command_options.h"
#include "service/signals.h"
#include "terminal/output.h"

namespace derate::cli {

Result<int> run_verb(const CompletionOptions& options) {
  print("{}", TRY(completion_script(options.shell)));
  return 0;
}

Result<int> run_verb(const ManualOptions& options) {
  if (options.list)
    print("{}", verbs_with_pages());
  else
    print("{}", options.verb.empty() ? manual_page() : TRY(manual_page_of(options.verb)));
  return 0;
}

Result<int> run_parsed(const std::variant<Verb, Exit>& parsed) {
  if (const auto* exit = std::get_if<Exit>(&parsed)) return exit->code;
  return std::visit([](const auto& options) { return run_verb(options); }, std::get<Verb>(parsed));
}

namespace {

int main_of(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv);
  Result<int> code = run_parsed(parsed);
  const Result<void> shown = finish_output();
  if (code.ok() && *code == 0 && !shown.ok()) code = shown.error();
  if (code.ok()) return *code;
  warn("derate: {}\n", code.error().message);
  return exit_code_of(code.error().code);
}

}  // namespace
}  // namespace derate::cli

int main(int argc, char** argv) {
  using namespace derate::cli;
  derate::open_standard_files();
  return derate::run_outermost("derate", [&] { return main_of(argc, argv); });
}
