// derate restore: restores what governors that died have left, from their journals.
#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/open_gpus.h"
#include "base/json.h"
#include "command_options.h"
#include "config/paths.h"
#include "govern/fleet/restore_left.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

const char* outcome_text(Restored::Outcome outcome) {
  if (outcome == Restored::Outcome::restored) return "restored";
  if (outcome == Restored::Outcome::reset) return "reset";
  return outcome == Restored::Outcome::governed ? "left alone" : "not restored";
}

void print_document(const std::vector<Restored>& rows) {
  Json list = Json::array();
  for (const auto& [domain, outcome, detail] : rows)
    list.push_back(
        {{"uuid", short_name(domain)}, {"outcome", outcome_text(outcome)}, {"detail", detail}});
  print_json("restore", {{"gpus", std::move(list)}});
}

void print_rows(const std::vector<Restored>& rows) {
  if (rows.empty()) print("nothing to restore: no journal is left in {}\n", journal_directory());
  if (rows.empty() && ::geteuid() != 0)
    print("Of what root's commands and derated may have left, root knows: sudo derate restore\n");
  for (const auto& [domain, outcome, detail] : rows)
    print("{}: {} ({})\n", short_name(domain), outcome_text(outcome), detail);
}

}  // namespace

Result<int> run_verb(const RestoreOptions& options) {
  SystemClock clock;
  RestoreRequest request{.open = open_to_restore, .gpus = options.gpus, .why = "asked to"};
  request.who = fmt::format("derate restore, pid {}", ::getpid());
  request.wait = from_seconds(options.wait_s);
  request.reset = options.reset;
  request.log = program_log("derate");
  const auto rows = TRY(restore_left(request, clock));
  if (options.json)
    print_document(rows);
  else
    print_rows(rows);
  return exit_code_of(rows);
}

}  // namespace derate::cli
