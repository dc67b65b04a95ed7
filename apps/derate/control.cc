// The verbs that change what the running daemon does: derate policy set, confirm, release, pause
// and resume.
#include "control.h"

#include <unistd.h>

#include "api/requests.h"
#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "command_options.h"
#include "config/paths.h"
#include "govern/fleet/policy_choice.h"
#include "gpu_choice.h"
#include "gpu_groups.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"
#include "service/answers/request_queue.h"
#include "service/http/api_call.h"
#include "service/transport/control_socket.h"
#include "service/transport/daemon_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// The machine's, where this user's own daemon has none: it refuses, which says more than silence.
std::string operators_socket() {
  for (const std::string& folder : run_directories())
    if (std::string path = folder + "/control.sock"; ::access(path.c_str(), F_OK) == 0) return path;
  return control_socket();
}

}  // namespace

Result<std::string> ask_operators(const AnyRequest& request) {
  const auto api = find_api();
  if (api.ok()) return TRY(api_call(*api, request, RequestQueue::kPatience)).body;
  if (api.error().code != Errc::not_found) return api.error();
  return ask_control(request, RequestQueue::kPatience);
}

Result<std::string> ask_control(const AnyRequest& request, Duration patience) {
  auto line = control_call(operators_socket(), request_text(request), patience);
  if (!line.ok() && line.error().code == Errc::not_found)
    return Error{Errc::not_found, "derated is not running (" + line.error().message + ")"};
  return line;
}

namespace {

// The whole answer, also one that tells of failures.
Result<Json> whole_answer(const AnyRequest& request) {
  Json answer = parse_json(TRY(ask_operators(request)));
  if (!answer.is_object()) return Error{Errc::io, "the daemon's answer is not understood"};
  return answer;
}

// One line for each GPU that failed; what failed before it came to the GPUs has one alone.
void print_failures(const Json& answer) {
  bool any = false;
  for (const Json& gpu : answer.value("gpus", Json::array())) {
    if (gpu.value("ok", false)) continue;
    warn("derate: {}\n", gpu.value("error", "refused"));
    any = true;
  }
  if (!any) warn("derate: {}\n", answer.value("error", "refused"));
}

// Like GPUs in one line.
void print_done(const Json& answer) {
  std::vector<GpuSentence> sentences;
  for (const Json& gpu : answer.value("gpus", Json::array()))
    if (gpu.value("ok", false))
      sentences.push_back({gpu.value("index", 0), gpu.value("message", "done")});
  if (sentences.empty()) print("{}\n", answer.value("message", "done"));
  for (const std::string& line : grouped_sentences(sentences)) print("{}\n", line);
}

Result<int> show_answer(const char* verb, const Json& answer, bool as_json) {
  const bool ok = answer.value("ok", false);
  if (as_json) {
    print_json(verb, answer);
  } else {
    // Of several GPUs some may have done what others did not.
    if (ok || answer.contains("message")) print_done(answer);
    if (!ok) print_failures(answer);
  }
  return ok ? exit_code::kOk : answer.value("exit_code", exit_code::kFailure);
}

Result<int> call_daemon(const char* verb, const AnyRequest& request, bool as_json) {
  return show_answer(verb, TRY(whole_answer(request)), as_json);
}

// Who is no operator has own runs alone to release.
Result<int> release_own(const ReleaseOptions& options, const std::string& gpus) {
  const DaemonLine daemon = TRY(find_daemon());
  const Json answer = TRY(ask(daemon, request_text(RunRelease{gpus})));
  if (options.json) return print_json("release", answer);
  print("{}\n", TRY(answer_of<MessageAnswer>(answer)).message);
  return exit_code::kOk;
}

}  // namespace

Result<int> run_verb(const PolicySetOptions& options) {
  // Refused here where it can be: without a daemon, and with its own words.
  const auto pick = TRY(pick_policy(options.policy.policy));
  TRY(policy_params(*pick.info, options.policy.assignments));
  if (pick.info->promise == PolicyInfo::Promise::none)
    warn("derate: {} bounds no loss of performance; assure does\n", pick.info->name);
  else if (can_exceed_promise(*pick.info))
    warn("derate: {} can lose more performance than delta allows; assure bounds the loss\n",
         pick.info->name);
  const std::string gpus = TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  return call_daemon("policy set",
                     PolicySet{.policy = options.policy.policy,
                               .set = options.policy.assignments,
                               .gpus = gpus,
                               .dry_run = options.dry_run,
                               .confirm_within_seconds = options.confirm_within_s},
                     options.json);
}

Result<int> run_verb(const PolicyConfirmOptions& options) {
  const std::string gpus = TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  return call_daemon("policy confirm", PolicyConfirm{gpus, options.revert}, options.json);
}

Result<int> run_verb(const ReleaseOptions& options) {
  if (options.gpus.empty() && !options.all)
    return Error{Errc::invalid_argument, "release: say which GPUs with -i, or --all"};
  const std::string gpus =
      options.all ? "" : TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  const Json answer = TRY(whole_answer(Release{gpus}));
  if (answer.value("code", "") == word_of(Errc::no_permission) && !answer.contains("gpus"))
    return release_own(options, gpus);
  return show_answer("release", answer, options.json);
}

Result<int> run_verb(const PauseOptions& options) {
  return call_daemon("pause", Pause{}, options.json);
}

Result<int> run_verb(const ResumeOptions& options) {
  return call_daemon("resume", Resume{}, options.json);
}

}  // namespace derate::cli
