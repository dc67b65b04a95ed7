// The verbs that change what the running daemon does: derate policy set, confirm, release, pause
// and resume.
#include "control.h"

#include <fmt/format.h>
#include <unistd.h>

#include "api/requests.h"
#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"
#include "command_options.h"
#include "config/keep_policy.h"
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

// Users who are not operators may release their own runs only. A user without a run gets `refusal`,
// which names who may release others' GPUs.
Result<int> release_own(const ReleaseOptions& options, const std::string& gpus,
                        const std::string& refusal) {
  const DaemonLine daemon = TRY(find_daemon());
  const auto answer = ask(daemon, request_text(RunRelease{gpus}));
  if (!answer.ok() && answer.error().code == Errc::not_found)
    return Error{Errc::no_permission,
                 fmt::format("no run of yours is on these GPUs, and {}", refusal)};
  TRY(answer);
  if (options.json) return print_json("release", *answer);
  print("{}\n", TRY(answer_of<MessageAnswer>(*answer)).message);
  return exit_code::kOk;
}

}  // namespace

namespace {

// "off" is no policy, but it is clear what is meant.
Result<PolicyPick> picked(const std::string& name) {
  auto pick = pick_policy(name);
  if (pick.ok()) return pick;
  for (const char* none : {"off", "none", "stop", "default", "no", "nothing"})
    if (name == none)
      return Error{Errc::not_found,
                   fmt::format("no policy '{}'; did you mean `derate release`, which gives GPUs "
                               "back?",
                               name)};
  return pick;
}

// Refused here where it can be: without a daemon, and with its own words.
Result<void> check_policy(const PolicyOptions& options) {
  if (options.policy.empty()) return {};
  const auto pick = TRY(picked(options.policy));
  TRY(policy_params(*pick.info, options.assignments));
  if (pick.info->promise == PolicyInfo::Promise::none)
    warn("derate: {} bounds no loss of performance; assure does\n", pick.info->name);
  else if (can_exceed_promise(*pick.info))
    warn("derate: {} can lose more performance than delta allows; assure bounds the loss\n",
         pick.info->name);
  return {};
}

// A mode with parameters of one's own is its policy with all of them.
WishToKeep wish_of(const PolicySetOptions& options, const std::string& gpus) {
  WishToKeep out{.policy = options.policy.policy,
                 .assignments = options.policy.assignments,
                 .dry_run = options.dry_run};
  const auto pick = pick_policy(options.policy.policy);
  if (pick.ok() && !out.assignments.empty()) {
    out.policy = pick->info->name;
    out.assignments.insert(out.assignments.begin(), pick->assignments.begin(),
                           pick->assignments.end());
  }
  for (const std::string_view each : split(gpus, ','))
    if (!each.empty()) out.gpus.emplace_back(each);
  return out;
}

// Writes it into the drop-in, which the daemon takes in; the GPUs are then the configuration's.
Result<int> keep(const PolicySetOptions& options, const std::string& gpus) {
  const auto shown =
      TRY(answer_of<SettingsAnswer>(TRY(daemon_answer(TRY(ask_operators(ConfigShow{}))))));
  std::vector<SettingNow> now;
  for (const SettingView& each : shown.settings)
    now.push_back({each.key, each.value, each.where.starts_with(shown.set_file + ":")});
  const KeptPolicy kept = keep_policy(wish_of(options, gpus), now);
  TRY(daemon_answer(TRY(ask_operators(ConfigSet{.set = kept.set}))));
  const int code = TRY(call_daemon("policy set", PolicySet{.gpus = gpus}, options.json));
  if (!options.json) print("Kept in {}; `{}` undoes that.\n", shown.set_file, kept.undo);
  return code;
}

}  // namespace

Result<int> run_verb(const PolicySetOptions& options) {
  const bool names_policy = !options.policy.policy.empty();
  if (!names_policy && options.gpus.empty())
    return Error{
        Errc::invalid_argument,
        "policy set: name a policy (`derate policy set assure`), or the GPUs that are to be "
        "the configuration's again (`derate policy set -i 0-3`; -i all)"};
  TRY(check_policy(options.policy));
  const std::string gpus = TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  if (options.keep) return keep(options, gpus);
  const int code = TRY(call_daemon("policy set",
                                   PolicySet{.policy = options.policy.policy,
                                             .set = options.policy.assignments,
                                             .gpus = gpus,
                                             .dry_run = options.dry_run,
                                             .confirm_within_seconds = options.confirm_within_s},
                                   options.json));
  const bool named = names_policy || !options.policy.assignments.empty();
  if (code == exit_code::kOk && !options.json && named && !options.confirm_within_s)
    print("It ends with the next restart of derated; with --keep it outlives that.\n");
  return code;
}

Result<int> run_verb(const PolicyConfirmOptions& options) {
  const std::string gpus = TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  return call_daemon("policy confirm", PolicyConfirm{gpus, options.revert}, options.json);
}

Result<int> run_verb(const ReleaseOptions& options) {
  if (options.gpus.empty() && !options.all)
    return Error{Errc::invalid_argument,
                 "release: say which GPUs: `derate release -i 0-3`, or --all"};
  const std::string gpus =
      options.all ? "" : TRY(gpus_by_uuid(options.gpus, ForeignName::passed_on));
  const Json answer = TRY(whole_answer(Release{gpus}));
  if (answer.value("code", "") == word_of(Errc::no_permission) && !answer.contains("gpus"))
    return release_own(options, gpus, answer.value("error", "refused"));
  return show_answer("release", answer, options.json);
}

Result<int> run_verb(const PauseOptions& options) {
  return call_daemon("pause", Pause{}, options.json);
}

Result<int> run_verb(const ResumeOptions& options) {
  return call_daemon("resume", Resume{}, options.json);
}

}  // namespace derate::cli
