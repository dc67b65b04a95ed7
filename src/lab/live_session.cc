#include "lab/live_session.h"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "base/child_process.h"
#include "base/json.h"
#include "base/number.h"
#include "base/own_files.h"
#include "base/printing.h"
#include "base/text.h"
#include "config/config.h"
#include "lab/live_record.h"

namespace derate {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr Duration kLookAtPrograms = 5ms;   // at processes
constexpr Duration kProgramPatience = 15s;  // for a program to begin or to end
constexpr Duration kLastReading = 1s;       // so that the energy counter is read after the last job
constexpr double kEnergyEvery = 0.2;  // s: a window's ends are that far from a reading at most
constexpr int kWorkPatience = 100;  // a job that needs longer than so many times its work is stuck

// Removed when it goes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string made = (fs::temp_directory_path() / "derate-lab-XXXXXX").string();
    if (::mkdtemp(made.data()) != nullptr) path_ = made;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// As tables and files can carry it.
std::string last_line(const std::string& file) {
  constexpr std::size_t kMost = 200;
  const auto text = read_file(file);
  if (!text.ok()) return "";
  std::string out;
  for (const std::string_view line : split(*text, '\n'))
    if (!line.empty()) out = printing_prefix(line, kMost);
  return out;
}

// CPU time of a process and of its children that live; nothing of one that is gone.
double cpu_seconds(pid_t pid) {
  double out = 0;
  if (const auto stat = read_file(fmt::format("/proc/{}/stat", pid)); stat.ok()) {
    const auto fields = split(std::string_view(*stat).substr(stat->rfind(')') + 2), ' ');
    if (fields.size() > 12)
      out = (parse_double(fields[11]).value_or(0) + parse_double(fields[12]).value_or(0)) /
            static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  if (const auto children = read_file(fmt::format("/proc/{0}/task/{0}/children", pid));
      children.ok())
    for (const std::string_view child : split(*children, ' '))
      if (const auto number = parse_number<pid_t>(child)) out += cpu_seconds(*number);
  return out;
}

// One session: its own folders, its own derated, one job after the other.
class LiveSession {
 public:
  LiveSession(const Plan& plan, std::size_t index, const std::optional<RealGpu>& gpu,
              const SessionHooks& hooks)
      : plan_(plan),
        index_(index),
        stage_(session_stage(plan, index)),
        gpu_(gpu),
        hooks_(hooks),
        random_(session_seed(plan, index)) {}
  ~LiveSession() {
    for (auto child = tenants_.rbegin(); child != tenants_.rend(); ++child) end(*child);
    if (governor_) end(*governor_);
    if (server_) end(*server_);
  }
  LiveSession(const LiveSession&) = delete;
  LiveSession& operator=(const LiveSession&) = delete;

  Result<std::optional<SessionRecord>> run();

 private:
  struct Window {
    Instant begin, end;
  };
  struct Ended {
    int exit_code = 0;
    Window window;
    bool stuck = false;
    std::string output, last_error;
  };

  void end(Child& child) { child.end(clock_, kProgramPatience); }
  std::string in_folder(const std::string& name) const { return folder_.path() + "/" + name; }
  Result<Child> start(const std::vector<std::string>& command, const std::string& name);
  Result<void> await(Child& child, const std::string& what, const std::function<bool()>& begun);
  Result<void> serve();
  Result<void> govern();
  Settings settings() const;
  bool idle_for(Duration time);
  std::vector<std::string> sim_job(std::size_t app, Duration work) const;
  Result<void> start_tenants(std::size_t app);
  Result<std::optional<Ended>> run_to_end(const std::vector<std::string>& command, Duration limit);
  Result<std::optional<Ended>> run_app(std::size_t app);
  Result<std::optional<JobRecord>> job(std::size_t app);
  void take_simulated(JobRecord& job, Ended& ended) const;
  static void take_real(JobRecord& job, Ended& ended);
  Result<bool> warm_up();
  Result<void> take_records(SessionRecord& out);

  const Plan& plan_;
  std::size_t index_;
  const Stage& stage_;
  const std::optional<RealGpu>& gpu_;  // empty: a simulated one
  const SessionHooks& hooks_;
  std::mt19937_64 random_;
  SystemClock clock_;
  TemporaryFolder folder_;
  std::vector<std::string> environment_;
  std::optional<Child> server_, governor_;
  std::vector<Child> tenants_;
  std::vector<Window> windows_;  // of the jobs that count
};

Result<Child> LiveSession::start(const std::vector<std::string>& command, const std::string& name) {
  ChildOptions options;
  options.environment = environment_;
  options.output = in_folder(name + ".out");
  options.errors = in_folder(name + ".err");
  options.own_group = options.dies_with_us = true;
  auto started = TRY(Child::start(command, options));
  if (!started.child) return Error{Errc::io, started.message};
  return *started.child;
}

Result<void> LiveSession::await(Child& child, const std::string& what,
                                const std::function<bool()>& begun) {
  const Instant last = clock_.now() + kProgramPatience;
  while (!begun()) {
    if (const auto code = child.poll())
      return Error{Errc::io, fmt::format("{} ended at its start with exit code {}: {}", what, *code,
                                         last_line(in_folder(what + ".err")))};
    if (clock_.now() > last)
      return Error{Errc::io,
                   fmt::format("{} has not begun in {:.0f} s", what, seconds(kProgramPatience))};
    clock_.sleep_until(clock_.now() + kLookAtPrograms);
  }
  return {};
}

Result<void> LiveSession::serve() {
  environment_.push_back("DERATE_SIM=" + in_folder("sim"));
  environment_.push_back("DERATE_NVML_LIBRARY=" + TRY(own_nvml_library()));
  const std::string seed = fmt::format("{}", session_seed(plan_, index_) % 1'000'000'000);
  const std::string& file = stage_.simulation->chip_file;
  const std::string chip = file.empty() ? stage_.chip : fs::absolute(file).string();
  server_ = TRY(
      start({TRY(own_program("derate")), "sim", "serve", "--chip", chip, "--seed", seed, "--json"},
            "server"));
  return await(*server_, "server", [this] {
    const auto text = read_file(in_folder("server.out"));
    return text.ok() && parse_json(*text).is_object();
  });
}

// What derated is to do, as its configuration has it.
Settings LiveSession::settings() const {
  const PolicyChoice& choice = session_policy(plan_, index_);
  Settings out;
  out.policy = choice.info->name;
  out.govern = true;
  out.dry_run = gpu_.has_value();
  out.gpus = gpu_ ? gpu_->uuid : "";
  out.energy_every_s = kEnergyEvery;
  for (const ExperimentPolicy& entry : plan_.experiment.policies) {
    if (entry.label != choice.label) continue;
    for (const std::string& assignment : entry.set) {
      const auto at = assignment.find('=');
      out.policy_settings.push_back(
          {choice.info->name, assignment.substr(0, at), assignment.substr(at + 1), entry.where});
    }
  }
  return out;
}

Result<void> LiveSession::govern() {
  const std::string config = in_folder("derate.toml");
  TRY(write_file_atomically(config, print_config(settings()), Durable::no));
  governor_ = TRY(start(
      {TRY(own_program("derated")), "--config", config, "--records", in_folder("records.jsonl")},
      "derated"));
  return await(*governor_, "derated",
               [this] { return last_line(in_folder("derated.err")).ends_with("ready"); });
}

// False: the experiment was stopped.
bool LiveSession::idle_for(Duration time) {
  const Instant until = clock_.now() + time;
  while (clock_.now() < until) {
    if (hooks_.stopped()) return false;
    clock_.sleep_until(std::min(until, clock_.now() + 20ms));
  }
  return true;
}

std::vector<std::string> LiveSession::sim_job(std::size_t app, Duration work) const {
  const Workload& workload = stage_.simulation->workloads[app];
  const auto own = own_program("derate");
  std::vector<std::string> out = {own.ok() ? *own : "derate", "sim", "job", workload.name,
                                  "--json"};
  if (work > Duration{}) {
    out.emplace_back("--work");
    out.push_back(fmt::format("{}", seconds(work)));
  }
  if (const auto tables = stage_.simulation->tables_of.find(workload.name);
      tables != stage_.simulation->tables_of.end()) {
    out.emplace_back("--tables");
    out.push_back(tables->second);
  }
  return out;
}

Result<void> LiveSession::start_tenants(std::size_t app) {
  for (int i = 1; i <= stage_.simulation->circumstances.tenants; ++i) {
    const std::size_t other =
        (app + static_cast<std::size_t>(i)) % stage_.simulation->workloads.size();
    tenants_.push_back(TRY(start(sim_job(other, Duration{}), fmt::format("tenant-{}", i))));
  }
  return {};
}

// A limit of zero: none. Empty: the experiment was stopped.
Result<std::optional<LiveSession::Ended>> LiveSession::run_to_end(
    const std::vector<std::string>& command, Duration limit) {
  Ended out;
  out.window.begin = clock_.now();
  Child child = TRY(start(command, "job"));
  while (true) {
    const auto code = child.poll();
    out.window.end = clock_.now();
    out.exit_code = code.value_or(0);
    out.stuck = !code && limit > Duration{} && out.window.end - out.window.begin > limit;
    const bool stopped = hooks_.stopped(), alone = governor_->poll().has_value();
    if (code || out.stuck || stopped || alone) end(child);
    if (alone)
      return Error{Errc::io,
                   fmt::format("derated has ended: {}", last_line(in_folder("derated.err")))};
    if (stopped) return std::optional<Ended>{};
    if (code || out.stuck) break;
    clock_.sleep_until(clock_.now() + kLookAtPrograms);
  }
  const auto text = read_file(in_folder("job.out"));
  if (text.ok()) out.output = *text;
  out.last_error = last_line(in_folder("job.err"));
  return std::optional(std::move(out));
}

// A simulated job says itself what it did.
void LiveSession::take_simulated(JobRecord& job, Ended& ended) const {
  const Json said = parse_json(ended.output);
  const auto number = [&](const char* key) {
    return said.is_object() && said.contains(key) && said[key].is_number() ? said[key].get<double>()
                                                                           : 0.0;
  };
  job.work = number("work_seconds");
  job.time = from_seconds(number("time_seconds"));
  job.energy = Joules(number("joules"));
  ended.window.end = std::min(ended.window.end, ended.window.begin + job.time);
}

void LiveSession::take_real(JobRecord& job, Ended& ended) {
  const auto report = parse_work_report(ended.output);
  if (!report.ok()) {
    job.error = report.error().message;
    return;
  }
  const std::optional<WorkReport>& said = *report;
  job.work = said ? said->work : 1;
  job.work_unit = said ? said->unit : "run";
  if (said && said->begin) ended.window = {*said->begin, *said->end};
  job.time = ended.window.end - ended.window.begin;
}

Result<std::optional<LiveSession::Ended>> LiveSession::run_app(std::size_t app) {
  if (gpu_) return run_to_end({"/bin/sh", "-c", plan_.experiment.commands[app].run}, {});
  const Duration work = stage_.simulation->circumstances.work;
  return run_to_end(sim_job(app, work), kWorkPatience * work);
}

// Empty: the experiment was stopped.
Result<std::optional<JobRecord>> LiveSession::job(std::size_t app) {
  JobRecord out;
  out.app = stage_.apps[app];
  if (!gpu_) TRY(start_tenants(app));
  const double cpu_before = cpu_seconds(governor_->pid());
  auto ended = TRY(run_app(app));
  for (Child& tenant : tenants_) end(tenant);
  tenants_.clear();
  if (!ended) return std::optional<JobRecord>{};
  out.policy_cpu = from_seconds(cpu_seconds(governor_->pid()) - cpu_before);
  if (ended->stuck)
    out.error = "made no progress";
  else if (ended->exit_code != 0)
    out.error = fmt::format("exit code {}{}{}", ended->exit_code,
                            ended->last_error.empty() ? "" : ": ", ended->last_error);
  else if (gpu_)
    take_real(out, *ended);
  else
    take_simulated(out, *ended);
  windows_.push_back(ended->window);
  hooks_.job_done();
  return std::optional(std::move(out));
}

// The first of the jobs, uncounted; a command for so long. False: the experiment was stopped.
Result<bool> LiveSession::warm_up() {
  const Duration time = from_seconds(plan_.experiment.warm_up_s);
  if (time <= Duration{}) return true;
  const std::size_t first = session_order(plan_, index_).front();
  const auto ended =
      TRY(gpu_ ? run_to_end({"/bin/sh", "-c", plan_.experiment.commands[first].run}, time)
               : run_to_end(sim_job(first, time), kWorkPatience * time));
  return ended.has_value();
}

// What derated saw of each job, once all is written.
Result<void> LiveSession::take_records(SessionRecord& out) {
  const std::string file = in_folder("records.jsonl");
  const auto ticks = TRY(parse_records(TRY(read_file(file)), file));
  for (std::size_t i = 0; i < out.jobs.size(); ++i) {
    JobRecord& job = out.jobs[i];
    add_ticks(job, ticks, windows_[i].begin, windows_[i].end);
    if (!gpu_ || !job.error.empty()) continue;
    if (job.ticks.empty()) {
      job.error = "too short to be measured";
      continue;
    }
    if (job.sensed_energy) {
      job.energy = *job.sensed_energy;
    } else {
      double watts = 0;
      for (const Tick& tick : job.ticks) watts += tick.power_w;
      job.energy = Watts(watts / static_cast<double>(job.ticks.size())) * job.time;
    }
    if (job.energy <= Joules(0) || job.time <= Duration{}) job.error = "too short to be measured";
  }
  return {};
}

Result<std::optional<SessionRecord>> LiveSession::run() {
  if (folder_.path().empty())
    return Error{Errc::io, fmt::format("cannot make a folder in '{}': {}",
                                       fs::temp_directory_path().string(), std::strerror(errno))};
  environment_ = {"DERATE_RUN_DIR=" + in_folder("run"), "DERATE_STATE_DIR=" + in_folder("state")};
  if (gpu_) environment_.push_back("CUDA_VISIBLE_DEVICES=" + gpu_->uuid);
  if (!gpu_) TRY(serve());
  TRY(govern());
  const Instant began = clock_.now();
  const std::optional<SessionRecord> stopped;
  if (!TRY(warm_up())) return stopped;
  SessionRecord out;
  std::uniform_real_distribution<double> share(0, 1);
  const Duration idle =
      gpu_ ? from_seconds(plan_.experiment.idle_s) : stage_.simulation->circumstances.idle;
  for (const std::size_t app : session_order(plan_, index_)) {
    if (!idle_for(idle + from_seconds(share(random_) * (1 + plan_.experiment.idle_spread_s))))
      return stopped;
    auto record = TRY(job(app));
    if (!record) return stopped;
    out.jobs.push_back(*std::move(record));
  }
  out.simulated = clock_.now() - began;
  if (!idle_for(kLastReading)) return stopped;
  end(*governor_);
  governor_.reset();
  TRY(take_records(out));
  return std::optional(std::move(out));
}

}  // namespace

SessionRunner on_served_gpus(const Plan& plan) {
  return [&plan](std::size_t index, const SessionHooks& hooks) {
    const std::optional<RealGpu> none;
    return LiveSession(plan, index, none, hooks).run();
  };
}

SessionRunner on_real_gpu(const Plan& plan, const RealGpu& gpu) {
  return [&plan, gpu = std::optional(gpu)](std::size_t index, const SessionHooks& hooks) {
    return LiveSession(plan, index, gpu, hooks).run();
  };
}

}  // namespace derate
