// The derate command: arguments to a verb, its failure to one line and an exit code.
#include <fmt/format.h>

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/outermost.h"
#include "command_line.h"
#include "command_options.h"
#include "service/transport/signals.h"
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

Result<int> run_verb(const ExitCodesOptions& options) {
  if (!options.json) {
    print("{}", exit_code_text());
    return 0;
  }
  Json codes = Json::array();
  for (const ExitCodeInfo& info : exit_codes())
    codes.push_back({{"code", info.code}, {"name", info.name}, {"meaning", info.meaning}});
  return print_json("exit-codes", {{"exit_codes", std::move(codes)}});
}

Result<int> run_parsed(const std::variant<Verb, Exit>& parsed) {
  if (const auto* exit = std::get_if<Exit>(&parsed)) return exit->code;
  return std::visit([](const auto& options) { return run_verb(options); }, std::get<Verb>(parsed));
}

namespace {

// After `derate history | head` the closed pipe is no error: the program ends by SIGPIPE, as
// programs do that do not ignore the signal.
void end_as_by_sigpipe() {
  std::signal(SIGPIPE, SIG_DFL);
  (void)std::raise(SIGPIPE);
}

int main_of(int argc, char** argv) {
  const auto parsed = parse_command_line(argc, argv);
  Result<int> code = run_parsed(parsed);
  const Result<void> shown = finish_output();
  if (code.ok() && *code == 0 && output_reader_gone()) end_as_by_sigpipe();
  if (code.ok() && *code == 0 && !shown.ok()) code = shown.error();
  if (code.ok()) return *code;
  warn("derate: {}\n", code.error().message);
  const bool says_how = code.error().message.find("sudo") != std::string::npos;
  if (code.error().code == Errc::no_permission && ::geteuid() != 0 && !says_how)
    warn("derate: what this user may not do, root may: sudo derate ...\n");
  return exit_code_of(code.error().code);
}

}  // namespace
}  // namespace derate::cli

int main(int argc, char** argv) {
  using namespace derate::cli;
  derate::open_standard_files();
  derate::ignore_signals_of_writes();
  return derate::run_outermost("derate", [&] { return main_of(argc, argv); });
}
