#include "tune_trial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>

#include "api/requests.h"
#include "base/child_process.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "govern/records_file.h"
#include "gpu_choice.h"
#include "run_ungoverned.h"
#include "service/transport/daemon_call.h"
#include "service/transport/signals.h"
#include "terminal/output.h"
#include "tune/metric_reader.h"

namespace derate::cli {
namespace {

constexpr const char* kPlace = "{batch_size}";
constexpr std::size_t kLongestLine = 64 << 10;
constexpr Duration kLook = std::chrono::milliseconds(100);
constexpr Duration kLookAtFile = std::chrono::seconds(1);
// After the command has ended: what its children still hold open is waited for no longer.
constexpr Duration kDrain = std::chrono::milliseconds(500);
// A daemon that does not answer is asked again after kAskAgain, and waited for at the end.
constexpr Duration kAskAgain = std::chrono::seconds(1);
constexpr Duration kPatience = std::chrono::seconds(10);
constexpr std::size_t kMostWaiting = 64;  // reports
constexpr int kMostAsked = 16;            // before the command's output is looked at again

// Of what the command prints: passed on as it comes, and cut into lines. A progress bar's \r ends
// one, too.
struct Stream {
  UniqueFd from;
  int to = STDOUT_FILENO;
  std::string rest;
};

// What a request that is under way asks.
enum class Asked : std::uint8_t { report, renew, end };

struct Run {
  SystemClock clock;
  const TuneRunOptions& options;
  DaemonLine daemon;
  DaemonCall call;
  Asked asked = Asked::renew;
  std::deque<MetricNews> news;  // not told yet
  MetricNews reported;          // that `asked` reports
  Instant ask_again_at{};       // a daemon that was not there
  bool ask_for_end = false;     // how the trial ended
  MetricReader reader;
  Stream output, errors;
  TrialView trial;
  std::string token;
  std::optional<Child> child;
  bool verdict = false;            // it is to stop
  int signal = 0;                  // ... because we are
  std::optional<Instant> stop_at;  // SIGTERM
  std::optional<Instant> kill_at;  // SIGKILL
  Instant renew_at{}, look_at_file{};
  std::optional<std::filesystem::file_time_type> file_written;  // before the command began
  std::optional<Instant> patient_until;                         // once the command has ended
  bool warned_silent = false, given_up = false;

  Run(const TuneRunOptions& how, DaemonLine line, MetricReader metric)
      : options(how), daemon(line), call(std::move(line), clock), reader(std::move(metric)) {}
};

enum class Place : std::uint8_t { front, back };

// Reports wait for the one before them. When too many do, the newest says what those before it
// said: counts only grow, and of metrics the newest counts.
void add_news(std::deque<MetricNews>& all, const MetricNews& news, Place place) {
  if (place == Place::front) {
    if (all.size() < kMostWaiting) all.push_front(news);
    return;
  }
  if (all.size() < kMostWaiting) return all.push_back(news);
  MetricNews& last = all.back();
  if (news.epoch) last.epoch = news.epoch;
  if (news.steps) last.steps = news.steps;
  if (news.metric) last.metric = news.metric;
}

struct Outcome {
  int exit_code = 0;
  bool interrupted = false;
  TrialView trial;
};

// As far as it is read: whoever reads us may be gone, and the command goes on.
void pass_on(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

void take_signals(Run& run) {
  const int signal = stop_signal();
  if (signal == 0) return;
  clear_stop_signal();
  if (run.signal != 0) run.kill_at = run.clock.now();  // the second is meant
  run.signal = signal;
  run.stop_at = run.clock.now();
}

// --- what is told and answered -------------------------------------------------------------------
// The command's output is passed on and its end is seen, whatever has become of the daemon: one
// request is under way at a time, and nothing waits for its answer.

void take_view(Run& run, const Json& answer) {
  const auto view = answer_of<TrialView>(answer);
  if (!view.ok()) return;
  run.trial = *view;
  run.verdict = view->stop;
  if (!run.verdict || run.stop_at) return;
  // Who reports by itself may have been told to stop, and has a while to do so.
  const bool by_itself = run.asked != Asked::report;
  run.stop_at = run.clock.now() + from_seconds(by_itself ? run.options.grace_s : 0);
}

// The trial is over, and not by us: by the command itself, which goes on with what comes after
// training, or because nothing was heard of it. How it ended tells which.
void take_end(const Json& answer) {
  const auto view = answer_of<TrialView>(answer);
  if (view.ok() && view->state == "lost")
    warn(
        "derate: trial {} was given up: {}; what it does now does not count; the command goes on\n",
        view->trial, view->why);
}

void take_failure(Run& run, const Error& error) {
  if (run.call.was_answered() && error.code == Errc::not_found) {
    run.given_up = run.ask_for_end = true;
    if (run.signal == 0) run.stop_at.reset();
    return;
  }
  const bool refused = run.call.was_answered() && error.code == Errc::no_permission;
  run.given_up = run.given_up || refused;
  if (!std::exchange(run.warned_silent, true) || refused)
    warn("derate: {}; the command goes on\n", error.message);
  if (run.call.was_answered()) return;
  // A daemon that is started again is told what it has missed.
  run.ask_again_at = run.clock.now() + kAskAgain;
  if (run.asked == Asked::report) add_news(run.news, run.reported, Place::front);
}

void take_answer(Run& run, const Result<Json>& answer) {
  if (run.asked == Asked::end) {
    if (answer.ok()) take_end(*answer);
    return;
  }
  if (!answer.ok()) return take_failure(run, answer.error());
  run.warned_silent = false;
  take_view(run, *answer);
}

// Begins what is to be asked next, if anything is.
bool ask_next(Run& run) {
  const Instant now = run.clock.now();
  if (std::exchange(run.ask_for_end, false)) {
    run.asked = Asked::end;
    run.call.begin(request_text(TrialEnd{run.trial.trial, run.token, "lost"}));
    return true;
  }
  if (run.given_up || now < run.ask_again_at) return false;
  if (!run.news.empty()) {
    run.reported = run.news.front();
    run.news.pop_front();
    run.asked = Asked::report;
    run.call.begin(request_text(TrialReport{run.trial.trial, run.token, run.reported.epoch,
                                            run.reported.steps, run.reported.metric}));
    return true;
  }
  if (now < run.renew_at) return false;
  // A word now and then, so that the trial is not given up.
  const double lease = run.trial.lease_seconds > 0 ? run.trial.lease_seconds : 60;
  run.renew_at = now + from_seconds(std::min(10.0, lease / 4));
  run.asked = Asked::renew;
  run.call.begin(request_text(TrialRenew{run.trial.trial, run.token}));
  return true;
}

// Takes in the answer that has come, and asks what is next.
void talk(Run& run) {
  for (int left = kMostAsked; left > 0; --left) {
    if (run.call.under_way()) {
      const auto answer = run.call.look();
      if (!answer) return;
      take_answer(run, *answer);
    }
    if (!ask_next(run)) return;
  }
}

void report(Run& run, const MetricNews& news) {
  if (const auto complaint = run.reader.take_complaint())
    warn("derate: {}; it is not counted\n", *complaint);
  if (!news.empty() && !run.given_up) add_news(run.news, news, Place::back);
}

void take_lines(Run& run, Stream& stream, std::string_view text) {
  stream.rest += text;
  for (auto end = stream.rest.find_first_of("\n\r"); end != std::string::npos;
       end = stream.rest.find_first_of("\n\r")) {
    report(run, run.reader.line(stream.rest.substr(0, end)));
    stream.rest.erase(0, end + 1);
  }
  if (stream.rest.size() > kLongestLine) stream.rest.clear();
}

// False at its end.
bool pump(Run& run, Stream& stream) {
  char buffer[16 << 10];
  const ssize_t n = ::read(stream.from.get(), buffer, sizeof buffer);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  if (n == 0) return false;
  const std::string_view text(buffer, static_cast<std::size_t>(n));
  pass_on(stream.to, text);
  take_lines(run, stream, text);
  return true;
}

void pump_all(Run& run, Duration wait) {
  pollfd wanted[3];
  nfds_t count = 0;
  for (Stream* stream : {&run.output, &run.errors})
    if (stream->from.valid()) wanted[count++] = {stream->from.get(), POLLIN, 0};
  const nfds_t streams = count;
  if (run.call.under_way() && run.call.fd() >= 0)
    wanted[count++] = {run.call.fd(), run.call.events(), 0};
  const auto ms = static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(wait).count());
  if (::poll(wanted, count, ms) <= 0) return;
  for (Stream* stream : {&run.output, &run.errors})
    for (nfds_t i = 0; i < streams; ++i)
      if (stream->from.valid() && wanted[i].fd == stream->from.get() && wanted[i].revents != 0 &&
          !pump(run, *stream))
        stream->from = UniqueFd();
}

// What is still to be told is, unless the daemon is not there or a signal says that it is enough.
void report_rest(Run& run) {
  run.patient_until = run.clock.now();
  if (run.signal != 0) return;  // it is lost, whatever it came to
  *run.patient_until += kPatience;
  run.ask_again_at = {};
  run.renew_at = Instant::max();
  talk(run);
  while (run.call.under_way() && run.clock.now() < *run.patient_until && stop_signal() == 0) {
    pump_all(run, kLook);
    talk(run);
  }
}

// Asks one thing, and waits for its answer until a signal comes; of what is asked after the
// command's end all but the first share their patience.
Result<Json> ask_now(Run& run, const std::string& request) {
  constexpr Duration kLeast = std::chrono::seconds(2);
  const Instant begin = run.clock.now();
  const Instant last = std::max(run.patient_until.value_or(begin + kPatience), begin + kLeast);
  run.call.begin(request);
  while (true) {
    if (const auto answer = run.call.look()) return *answer;
    if (run.clock.now() >= last)
      return Error{Errc::gpu_stuck, "the daemon does not answer; the trial's lease will end it"};
    if (stop_signal() != 0) {
      take_signals(run);
      return Error{Errc::interrupted, "the daemon had not answered when a signal came"};
    }
    pump_all(run, kLook);
  }
}

std::optional<std::filesystem::file_time_type> written_at(const std::string& file) {
  std::error_code none;
  const auto at = std::filesystem::last_write_time(file, none);
  return none ? std::nullopt : std::optional(at);
}

// What an earlier run has left in the file is no news of this one.
void pass_over_file(Run& run) {
  if (run.options.metric_file.empty()) return;
  run.file_written = written_at(run.options.metric_file);
  if (auto before = read_file(run.options.metric_file); before.ok())
    run.reader.file_before(*std::move(before));
}

void look_at_file(Run& run, bool now) {
  if (run.options.metric_file.empty() || (!now && run.clock.now() < run.look_at_file)) return;
  run.look_at_file = run.clock.now() + kLookAtFile;
  if (run.file_written && written_at(run.options.metric_file) == run.file_written) return;
  run.file_written.reset();
  const auto content = read_file(run.options.metric_file);
  if (content.ok()) report(run, run.reader.file(*content));
}

void stop_when_due(Run& run) {
  const Instant now = run.clock.now();
  if (run.stop_at && now >= *run.stop_at && !run.kill_at) {
    run.child->forward(run.signal != 0 ? run.signal : SIGTERM);
    run.kill_at = now + from_seconds(run.options.grace_s);
  }
  if (run.kill_at && now >= *run.kill_at) run.child->forward(SIGKILL);
}

int wait_for_end(Run& run) {
  std::optional<int> code;
  while (!(code = run.child->poll())) {
    pump_all(run, kLook);
    look_at_file(run, false);
    talk(run);
    take_signals(run);
    stop_when_due(run);
  }
  const Instant last = run.clock.now() + kDrain;
  while ((run.output.from.valid() || run.errors.from.valid()) && run.clock.now() < last) {
    pump_all(run, last - run.clock.now());
    talk(run);
  }
  for (Stream* stream : {&run.output, &run.errors})
    if (!stream->rest.empty()) report(run, run.reader.line(std::exchange(stream->rest, {})));
  look_at_file(run, true);
  run.child->end(run.clock, Duration{});  // what it left behind, too
  report_rest(run);
  take_signals(run);
  return *code;
}

Result<UniqueFd> pipe_to(Stream& stream) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::io, fmt::format("cannot make a pipe: {}", std::strerror(errno))};
  stream.from = UniqueFd(ends[0]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return UniqueFd(ends[1]);
}

std::vector<std::string> with_batch_size(std::vector<std::string> command, int size) {
  const std::string text = fmt::format("{}", size);
  for (std::string& word : command)
    for (auto at = word.find(kPlace); at != std::string::npos; at = word.find(kPlace))
      word.replace(at, std::strlen(kPlace), text);
  return command;
}

std::vector<std::string> environment_of(const Run& run) {
  std::vector<std::string> out = {fmt::format("DERATE_TRIAL={}", run.trial.trial),
                                  "DERATE_TRIAL_TOKEN=" + run.token,
                                  "DERATE_CLIENT_SOCKET=" + run.daemon.socket};
  if (run.trial.batch_size > 0)
    out.push_back(fmt::format("DERATE_BATCH_SIZE={}", run.trial.batch_size));
  // Into a pipe Python would keep its lines back.
  if (::getenv("PYTHONUNBUFFERED") == nullptr) out.emplace_back("PYTHONUNBUFFERED=1");
  return out;
}

// It ended well, and nobody has told a metric: a pattern that does not match, or a job without one.
// Trying again would only take as long once more.
bool has_no_metric(Run& run) {
  if (run.options.job.empty() || run.given_up) return false;
  // The command may have reported by itself.
  run.asked = Asked::renew;
  take_answer(run, ask_now(run, request_text(TrialRenew{run.trial.trial, run.token})));
  return !run.given_up && !run.verdict && !run.trial.metric;
}

// What its end says of the batch size; a verdict that was given comes before it.
const char* outcome_of(Run& run, int code) {
  if (run.signal != 0) return "lost";
  if (run.verdict) return run.trial.verdict.c_str();
  if (code != 0) return run.reader.out_of_memory() ? "infeasible" : "lost";
  if (!has_no_metric(run)) return run.verdict ? run.trial.verdict.c_str() : "missed";
  warn(
      "derate: no metric was told: wanted are lines such as 'derate: epoch=3 metric=0.61', "
      "--metric-pattern or --metric-file\n");
  return "lost";
}

// Null where the daemon does not answer any more: its lease ends the trial.
std::optional<TrialView> end_trial(Run& run, const std::string& outcome) {
  const auto answer = ask_now(run, request_text(TrialEnd{run.trial.trial, run.token, outcome}));
  if (!answer.ok()) {
    if (!run.given_up) warn("derate: {}\n", answer.error().message);
    return std::nullopt;
  }
  const auto view = answer_of<TrialView>(*answer);
  return view.ok() ? std::optional(*view) : std::nullopt;
}

Result<Outcome> run_once(Run& run, const std::optional<RunAs>& as) {
  ChildOptions how{
      .as = as, .environment = environment_of(run), .own_group = true, .dies_with_us = true};
  Result<Child::Started> started = Error{Errc::io, ""};
  pass_over_file(run);
  {
    const UniqueFd out = TRY(pipe_to(run.output));
    const UniqueFd err = TRY(pipe_to(run.errors));
    run.errors.to = STDERR_FILENO;
    how.output_fd = out.get();
    how.errors_fd = err.get();
    started = Child::start(with_batch_size(run.options.command, run.trial.batch_size), how);
  }
  if (!started.ok() || !started->child) {
    const auto ended = end_trial(run, "lost");
    if (!started.ok()) return std::move(started).error();
    warn("derate: {}\n", started->message);
    return Outcome{started->exit_code, true, ended.value_or(run.trial)};
  }
  run.child = std::move(started->child);
  const int code = wait_for_end(run);
  Outcome out{code, run.signal != 0, run.trial};
  if (const auto ended = end_trial(run, outcome_of(run, code))) out.trial = *ended;
  // It did what it was to do, and was told to stop then.
  const bool ended_by_us = run.kill_at.has_value() && run.signal == 0;
  if (ended_by_us && out.trial.state == "reached") out.exit_code = exit_code::kOk;
  return out;
}

void print_begin(const TrialView& trial) {
  if (trial.batch_size > 0)
    warn("derate: job {}, run {}, try {}: batch size {}, {}\n", trial.job, trial.recurrence + 1,
         trial.attempt, trial.batch_size, trial.why);
  if (!trial.knob.empty()) warn("derate: GPUs: {}\n", trial.knob);
}

std::string account_text(const TrialView& trial) {
  const std::string what = trial.batch_size > 0
                               ? fmt::format("batch size {}: {} after {:g} epochs",
                                             trial.batch_size, trial.state, trial.epochs)
                               : std::string("the run");
  return fmt::format(
      "derate: {}, {:.1f} J in {}, cost {:.1f} J{}\n", what, trial.energy_joules.value_or(0),
      duration_text(from_seconds(trial.time_seconds.value_or(0))), trial.cost_joules,
      trial.batch_size > 0 && !trial.why.empty() ? fmt::format(" ({})", trial.why) : "");
}

Result<void> write_account(const TuneRunOptions& options, const std::vector<TrialView>& tries,
                           int code) {
  Json list = Json::array();
  std::string text;  // told already, try by try
  for (const TrialView& trial : tries) {
    list.push_back(answer_json(trial));
    text += account_text(trial);
  }
  const Json document = with_schema("tune run", {{"exit_code", code}, {"tries", std::move(list)}});
  if (!options.report.empty()) {
    auto file = TRY(TextFile::create(options.report));
    return file.write(options.json ? json_text(document, 2) + "\n" : text);
  }
  // Standard output is the command's.
  if (options.json) write_text(stderr, printing_json(json_text(document, 2)) + "\n");
  return {};
}

Result<int> run_job(const TuneRunOptions& options) {
  auto reader = TRY(
      MetricReader::create({options.metric_pattern, options.epoch_pattern, options.oom_patterns}));
  const auto as = options.as_root ? std::optional<RunAs>{} : TRY(user_behind_sudo());
  const DaemonLine daemon = TRY(find_daemon());
  watch_signals();
  std::vector<TrialView> tries;
  const ChosenGpus chosen = TRY(chosen_gpus(options.gpus));
  if (!chosen.none.empty()) {
    // A job trains on a GPU, so its batch size cannot be tuned without one.
    if (!options.job.empty()) return Error{Errc::not_found, chosen.none};
    return run_ungoverned(options, as, chosen.none, {}, program_log("derate"));
  }
  // derated can see more GPUs than this process, and number them differently.
  const std::string gpus = TRY(gpus_by_uuid(chosen.list ? *chosen.list : only_gpu_of_view()));
  TrialStart start{options.job, gpus, {}, options.selector, options.knob, options.model};
  Outcome outcome;
  do {
    Run run(options, daemon, reader);
    const auto begun = ask(daemon, request_text(start));
    if (!begun.ok() && tries.empty()) return begun.error();
    if (!begun.ok()) {  // no further try; what was tried stands
      warn("derate: {}\n", begun.error().message);
      break;
    }
    run.trial = TRY(answer_of<TrialView>(*begun));
    run.token = run.trial.token;
    print_begin(run.trial);
    outcome = TRY(run_once(run, as));
    outcome.trial.token.clear();
    if (options.report.empty() && !options.json) write_text(stderr, account_text(outcome.trial));
    tries.push_back(outcome.trial);
    start.retry_of = outcome.trial.trial;
  } while (!outcome.interrupted && !options.no_retry && outcome.trial.may_retry &&
           (outcome.trial.state == "missed" || outcome.trial.state == "stopped" ||
            outcome.trial.state == "infeasible"));
  if (const auto written = write_account(options, tries, outcome.exit_code); !written.ok())
    warn("derate: {}\n", written.error().message);
  return outcome.exit_code;
}

}  // namespace

Result<int> run_trials(const TuneRunOptions& options) {
  auto code = run_job(options);
  if (code.ok()) return code;
  warn("derate: {}\n", code.error().message);
  return exit_code::kRunFailed;
}

}  // namespace derate::cli
