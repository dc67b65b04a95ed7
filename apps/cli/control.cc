// derate policy set, release, pause, resume: what the running daemon is told to do.

#include "apps/common/output.h"
#include "apps/common/paths.h"
#include "apps/common/setup.h"
#include "base/json.h"
#include "policy/modes.h"
#include "service/control_socket.h"
#include "verbs.h"

namespace derate::cli {
namespace {

// Giving eight GPUs back takes seconds when some of them hang.
constexpr Duration kPatience = std::chrono::seconds(30);

Result<int> tell_daemon(const Json& request, bool as_json) {
  auto text = control_call(control_socket(), json_text(request), kPatience);
  if (!text.ok() && text.error().code == Errc::not_found)
    return Error{Errc::not_found, "derated is not running (" + text.error().message + ")"};
  const Json answer = parse_json(TRY(std::move(text)));
  if (!answer.is_object() || !answer.value("ok", false)) {
    if (as_json && answer.is_object())
      print_json(answer);
    else
      warn("derate: {}\n", answer.is_object() ? answer.value("error", "refused") : "no answer");
    return answer.is_object() ? answer.value("exit_code", 1) : 1;
  }
  if (as_json)
    print_json(answer);
  else
    print("{}\n", answer.value("message", "done"));
  return 0;
}

}  // namespace

Result<int> run_verb(const PolicySetOptions& options) {
  // Refused here where it can be: without a daemon, and with its own words.
  const auto pick = TRY(pick_policy(options.policy.policy));
  TRY(policy_params(*pick.info, options.policy.assignments));
  return tell_daemon({{"command", "policy-set"},
                      {"policy", options.policy.policy},
                      {"set", options.policy.assignments},
                      {"gpus", options.gpus},
                      {"dry_run", options.dry_run}},
                     options.json);
}

Result<int> run_verb(const ReleaseOptions& options) {
  if (options.gpus.empty() && !options.all)
    return Error{Errc::invalid_argument, "release: say which GPUs with -i, or --all"};
  return tell_daemon({{"command", "release"}, {"gpus", options.all ? "" : options.gpus}},
                     options.json);
}

Result<int> run_verb(const PauseOptions& options) {
  return tell_daemon({{"command", "pause"}}, options.json);
}

Result<int> run_verb(const ResumeOptions& options) {
  return tell_daemon({{"command", "resume"}}, options.json);
}

}  // namespace derate::cli
