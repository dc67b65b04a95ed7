// The verbs of the command line: options in, exit code out. command_line.cc is the one place that
// turns arguments into these structs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/config_requests.h"
#include "apps/common/options.h"
#include "base/result.h"
#include "policy/policy_options.h"
#include "tune/job.h"

namespace derate::cli {

// What every verb takes.
struct Common {
  bool json = false;
};

struct DemoOptions : Common {
  std::string data;  // folder of the measured tables; empty: without them
  double delta = 0.10;
  int seeds = 0;  // 0: 1 for the built-in workloads, 10 for the tables
  double job_seconds = 120;
  bool apps = false;  // every application, not only the means
};

struct DemoServeOptions : Common {
  std::string data;  // folder of the measured tables; empty: arrivals are drawn
  std::string chip = "V100-SXM2", engine = "mistral-7b";
  std::vector<double> loads = {0.15, 0.4, 0.65};
  int seeds = 4, seed = 1, most_running = 16;
  int step_tokens = 0;  // 0: the engine's own
  double live_s = 0;    // of real processes, too; 0: none
};

// The GPUs of a command that is started here.
struct GpuChoice {
  std::string named;  // with -i
  bool all = false;   // else those that are the command's own, where its environment says so
};

// The command is an engine that serves a language model.
struct RunEngineOptions {
  std::string metrics;  // the address of its page; empty: it is none
  std::vector<std::string> promise;
  std::string model;
  int most_running = 0;  // 0: not known
};
struct RunOptions : Common {
  RunEngineOptions engine;
  PolicyOptions policy;
  SimCliOptions sim;
  GpuChoice gpus;
  bool dry_run = false;
  bool as_root = false;
  bool shared = false;  // also beside another user's processes
  bool no_launches = false;
  std::string records;  // a JSON line a tick and GPU
  std::string report;   // the summary goes there; empty: standard error (JSON: standard output)
  std::vector<std::string> command;
};

struct EnergyOptions : Common {
  SimCliOptions sim;
  GpuChoice gpus;
  double interval_s = 0.1;
  std::optional<double> time_s;  // empty: until Ctrl-C
  bool as_root = false;
  std::string log;     // a line of CSV a window
  std::string report;  // as of RunOptions
  std::vector<std::string> command;
};

struct CompareOptions : Common {
  SimCliOptions sim;
  GpuChoice gpus;
  double interval_s = 0.1;
  double precision = 0.02;  // a share of each ratio
  int pairs = 20;           // at most
  int warm_up = 1;          // runs of each, which do not count
  bool as_root = false, show_output = false;
  std::string policies, limits;      // two, comma-separated; empty: two commands
  std::string csv, svg;              // files
  std::vector<std::string> command;  // A, "--vs", B
};

struct AttributeOptions : Common {
  SimCliOptions sim;
  std::string gpus;
  double interval_s = 1;
  std::optional<double> time_s;  // as of EnergyOptions
  bool watch = false;
  std::string method, idle_rule;  // empty: the configuration's
  std::string ticks, replay;      // files of readings, to write and to read
};
struct AttributeMethodsOptions : Common {};

struct BillOptions : Common {
  std::string from, to = "now";  // empty: the beginning of the month
  std::string by = "user";
  std::string gpus, file, config;
  std::optional<double> price, co2;
  bool csv = false;
};

// The history is the daemon's; without one, or of another machine, that of a file.
struct HistoryFile {
  std::string file;  // empty: the daemon's
};
struct HistoryOptions : Common, HistoryFile {
  std::string gpus;
  std::string from = "now-6h", to = "now";
  std::string what = "power";
  bool tenants = false, csv = false;
  int points = 0;  // 0: as many as the picture wants
};
struct SavingsOptions : Common, HistoryFile {
  std::string by = "day", from = "month", to = "now";
  std::optional<double> price, co2;
  std::string prices;  // a file
  std::string config;
  bool csv = false;
};
struct WhyOptions : Common, HistoryFile {
  std::string gpu, at = "now";  // empty: GPU 0
  int changes = 10;
};
struct UiOptions {
  std::string listen = "127.0.0.1:0";
  bool no_open = false;
};
struct AdviseOptions : Common, HistoryFile {
  SimCliOptions sim;
  std::vector<std::string> traces;  // of recorded GPUs; empty: GPUs are read
  std::string gpus;                 // empty: all
  double seconds = 60;
  double interval_s = 0.1;
  std::string label;     // of traces: the phases of that label alone; empty: all
  bool one_job = false;  // the GPUs work on one job
  bool list = false;     // what there is to advise
  bool history = false;  // of promises, from what is kept
  std::string from = "now-7d", to = "now";
};
struct EventsOptions : Common, HistoryFile {
  std::string gpu;
  std::string from, to;  // empty: the last day, or with `follow` the last ten
  bool follow = false;
  bool each = false;  // not folded
};

// With a job, or where a daemon runs, the daemon tunes; else this process does.
struct TuneRunOptions : RunOptions {
  std::string job;                    // empty: none, only the knob is tuned
  std::string selector, knob, model;  // of no job; empty: the defaults
  std::optional<double> highest_w;    // limit; empty: as found
  std::optional<double> guard;
  std::string metric_pattern, epoch_pattern, metric_file;
  std::vector<std::string> oom_patterns;  // beside those that are known
  double grace_s = 10;
  bool no_retry = false;
};

struct StatusOptions : Common {
  std::string gpus;
};

struct BeatOptions {
  std::optional<double> done, max_loss;
  std::string phase, gpu;
  bool from_stdin = false, announce = false;
  std::int32_t pid = 0;  // 0: the caller
};

struct TuneReplayOptions : Common {
  std::string train;
  std::vector<std::string> power, workloads, policies;
  std::string targets = "reported", selector = "cost:0.5";
  std::string change = "nothing";  // half way
  double eta = 0.5, beta = 2, noise = 0;
  int seeds = 100, first_seed = 1, recurrences = 0;
  std::optional<double> budget;
  bool brief = false;
};

struct PolicyListOptions : Common {};
struct PolicyShowOptions : Common {
  std::string name;
};

struct PolicySetOptions : Common {
  PolicyOptions policy;  // no name: the configuration's
  std::string gpus;
  bool dry_run = false, keep = false;
  std::optional<double> confirm_within_s;
};

struct PolicyConfirmOptions : Common {
  std::string gpus;
  bool revert = false;
};
struct PolicyForecastOptions : Common {
  std::string gpus;
};

struct PolicyModelsOptions : Common {
  bool simulated = false;
};
struct PolicyForgetOptions : PolicyModelsOptions {
  std::vector<std::int64_t> ids;
  bool all = false;
};

struct TuneJobCreateOptions : Common {
  JobSpec spec;
  bool replace = false;
};
struct TuneJobShowOptions : Common {
  std::string name;
};
struct TuneJobListOptions : Common {};
struct TuneJobRemoveOptions : Common {
  std::string name;
};
struct TopOptions : Common {
  std::string gpus;
  double interval_s = 1;
  int rounds = 0;  // 0: until q or Ctrl-C
};

struct RestoreOptions : Common {
  std::string gpus;
  bool reset = false;
  double wait_s = 0;
};

struct ReleaseOptions : Common {
  std::string gpus;
  bool all = false;
};
struct PauseOptions : Common {};
struct ResumeOptions : Common {};

struct RecordOptions : Common {
  SimCliOptions sim;
  std::string gpu = "0";
  std::string output;
  double seconds = 0;  // 0: until Ctrl-C
  double interval_s = 0.1;
  bool force = false;
};

struct ReplayOptions : Common {
  PolicyOptions policy;
  std::string trace;
  std::string chip;
  std::string records;
};

struct SimListOptions : Common {
  std::string chip;
  bool toml = false;
};

// A server of simulated GPUs, wherever it is.
struct SimDirectory {
  std::string directory;  // empty: $DERATE_SIM, else in the run directory
};
struct SimServeOptions : Common, SimDirectory {
  std::vector<std::string> chips;
  int gpus = 0;  // 0: one of each chip
  int seed = 1;
  double speed = 1;
  std::string mig;  // a layout; "none": MIG mode without instances
  std::vector<std::uint32_t> minors;
};
// The options of the workload llm.
struct SimEngineOptions {
  std::string metrics = "127.0.0.1:8000", name, trace, burst;
  double requests = 1;               // a second
  int running = 0, step_tokens = 0;  // 0: the engine's own
  int seed = 1;
  double for_s = 0;  // 0: until Ctrl-C
};
struct SimJobOptions : Common, SimDirectory {
  SimEngineOptions engine;
  std::string workload;
  double work_s = 0;  // at the highest clock; 0: until Ctrl-C
  std::string gpu = "0";
  std::string tables;
  bool beat = false;
  std::string launches;  // a recording of them
  int instance = 0;      // with MIG; 0: none named
};
struct SimDcgmAddress : SimDirectory {
  std::string listen;  // empty: hostengine in the directory
};
struct SimDcgmOptions : SimDcgmAddress {
  std::string engine_version = "4.6.0";
};
struct SimDcgmFaultOptions : SimDcgmAddress {
  std::vector<std::string> faults;  // all others are over
};
struct SimShowOptions : Common, SimDirectory {
  std::string gpus;
};
struct SimFaultOptions : SimDirectory {
  std::string gpus;
  std::string call, fails;
  bool hangs = false;
  int skip = 0, times = 0;  // times 0: always
  bool lost = false, writes_ignored = false, absurd = false, mig = false;
  int xid = 0;  // 0: none
  std::string counters;
  std::string kill_writer;
  int at = 1;
  bool clear = false;
};

struct SlurmPrologOptions {};
struct SlurmEpilogOptions {
  bool comment = false;
  std::string shares;  // a folder that all nodes have; empty: none
};
struct SlurmCommentOptions {
  std::string job, cluster, node, shares;
  int nodes = 1, restart = 0;
  double begun = 0;  // seconds since the epoch; 0: the newest run
};
struct SlurmReportOptions : Common {
  std::string account, user, file;  // empty: all; what the daemon keeps
  std::string from, to = "now";     // empty: the beginning of the month
  std::string by = "account";
  bool here = false;
};
struct SlurmJobsOptions : Common {
  std::string job;  // empty: all
};
struct SlurmGpusOptions : Common {
  std::string node;  // as Slurm names it
};

struct DoctorOptions : Common {
  bool verbose = false;  // a line for each finding of each GPU
  bool cost = false;     // of the driver's calls
};

struct ConfigOptions : Common {
  std::string file;  // empty: the default file
};
struct ConfigCheckOptions : ConfigOptions {};
struct ConfigPrintOptions : ConfigOptions {};
struct ConfigSetOptions : Common {
  std::vector<std::string> set, unset;  // "section.key=value", "section.key"
  bool dry_run = false;
};
struct ConfigDiffOptions : Common {};

struct TokenCreateOptions : Common {
  std::string name;
  std::string role = TokenCreate{}.role;
  double days = TokenCreate{}.days;
};
struct TokenListOptions : Common {};
struct TokenRevokeOptions : Common {
  std::string name;
};

// An experiment's results lie in one file.
struct LabResults : Common {
  std::string results;
  std::string data;  // folder of the measured tables; empty: as when it was run
};
struct LabRunOptions : LabResults {
  std::string experiment;
  unsigned threads = 0;  // 0: as many as there are cores
  bool fresh = false;    // what is in the results is dropped
  bool dry_run = false;  // of a real GPU, policies decide and write nothing
  bool apps = false, cells = false;
};
struct LabCheckOptions : Common {
  std::string experiment, data;
};
struct LabShowOptions : LabResults {
  bool apps = false, cells = false;
  std::vector<std::string> policies;  // only these; empty: all
};
struct ReportOptions : LabResults {
  std::string output, beside;       // beside: other results, on the same page
  std::optional<std::int64_t> job;  // this one's ticks instead of a page
};
struct LabExportOptions : LabResults {
  std::string folder;
};
struct LabImportOptions : Common {
  std::string performance, power, utilisation;  // files; utilisation may be empty
  std::string chip = "V100-SXM2";
  std::string folder;
};
struct LabLogOptions : Common {
  std::string log;
};
struct LabAttributionOptions : Common {
  std::vector<std::string> scenarios, methods;  // empty: all
  int seeds = 8;
  std::uint64_t first_seed = 1;
  int minutes = 30;
  unsigned threads = 0;  // 0: as many as there are cores
  double driver_cost = 0;
};
struct LabSharesOptions : Common {
  std::vector<std::string> worlds;  // how their names begin; empty: all
  bool list = false;
  int seeds = 5;
  std::uint64_t first_seed = 1;
  int drawn = 20;
  unsigned threads = 0;  // 0: as many as there are cores
};
struct LabExampleOptions {};
struct LabWorkloadsOptions : Common {};

struct CompletionOptions {
  std::string shell;
};
struct ManualOptions {
  std::string verb;  // empty: of all
  bool list = false;
};
struct ExitCodesOptions : Common {};

using Verb = std::variant<
    DemoOptions, DemoServeOptions, RunOptions, StatusOptions, PolicyListOptions, PolicyShowOptions,
    RecordOptions, ReplayOptions, SimListOptions, SimServeOptions, SimJobOptions, SimShowOptions,
    SimFaultOptions, SimDcgmOptions, SimDcgmFaultOptions, DoctorOptions, ConfigCheckOptions,
    ConfigPrintOptions, ConfigSetOptions, ConfigDiffOptions, TokenCreateOptions, TokenListOptions,
    TokenRevokeOptions, CompletionOptions, ManualOptions, ExitCodesOptions, PolicySetOptions,
    PolicyConfirmOptions, PolicyForecastOptions, TopOptions, RestoreOptions, ReleaseOptions,
    PauseOptions, ResumeOptions, LabRunOptions, LabShowOptions, LabCheckOptions, LabExampleOptions,
    LabWorkloadsOptions, ReportOptions, LabExportOptions, LabImportOptions, LabLogOptions,
    BeatOptions, PolicyModelsOptions, PolicyForgetOptions, TuneReplayOptions, EnergyOptions,
    CompareOptions, TuneRunOptions, TuneJobCreateOptions, TuneJobShowOptions, TuneJobListOptions,
    TuneJobRemoveOptions, AttributeOptions, AttributeMethodsOptions, BillOptions,
    LabAttributionOptions, LabSharesOptions, HistoryOptions, SavingsOptions, WhyOptions,
    EventsOptions, AdviseOptions, UiOptions, SlurmPrologOptions, SlurmEpilogOptions,
    SlurmCommentOptions, SlurmJobsOptions, SlurmGpusOptions, SlurmReportOptions>;

// Each prints its result and returns the exit code; an Error is printed by main().
Result<int> run_verb(const DemoOptions& options);
Result<int> run_verb(const DemoServeOptions& options);
Result<int> run_verb(const RunOptions& options);
Result<int> run_verb(const EnergyOptions& options);
Result<int> run_verb(const CompareOptions& options);
Result<int> run_verb(const AttributeOptions& options);
Result<int> run_verb(const AttributeMethodsOptions& options);
Result<int> run_verb(const BillOptions& options);
Result<int> run_verb(const HistoryOptions& options);
Result<int> run_verb(const SavingsOptions& options);
Result<int> run_verb(const WhyOptions& options);
Result<int> run_verb(const EventsOptions& options);
Result<int> run_verb(const AdviseOptions& options);
Result<int> advise_from_history(const AdviseOptions& options);
Result<int> run_verb(const UiOptions& options);
Result<int> run_verb(const StatusOptions& options);
Result<int> run_verb(const TopOptions& options);
Result<int> run_verb(const BeatOptions& options);
Result<int> run_verb(const TuneReplayOptions& options);
Result<int> run_verb(const RestoreOptions& options);
Result<int> run_verb(const ReleaseOptions& options);
Result<int> run_verb(const PauseOptions& options);
Result<int> run_verb(const ResumeOptions& options);
Result<int> run_verb(const PolicySetOptions& options);
Result<int> run_verb(const PolicyConfirmOptions& options);
Result<int> run_verb(const PolicyForecastOptions& options);
Result<int> run_verb(const PolicyListOptions& options);
Result<int> run_verb(const PolicyShowOptions& options);
Result<int> run_verb(const PolicyModelsOptions& options);
Result<int> run_verb(const PolicyForgetOptions& options);
Result<int> run_verb(const TuneJobCreateOptions& options);
Result<int> run_verb(const TuneJobShowOptions& options);
Result<int> run_verb(const TuneJobListOptions& options);
Result<int> run_verb(const TuneJobRemoveOptions& options);
Result<int> run_verb(const TuneRunOptions& options);
Result<int> run_verb(const RecordOptions& options);
Result<int> run_verb(const ReplayOptions& options);
Result<int> run_verb(const SimListOptions& options);
Result<int> run_verb(const SimServeOptions& options);
Result<int> run_verb(const SimDcgmOptions& options);
Result<int> run_verb(const SimDcgmFaultOptions& options);
Result<int> run_verb(const SimJobOptions& options);
Result<int> run_verb(const SimShowOptions& options);
Result<int> run_verb(const SimFaultOptions& options);
Result<int> run_verb(const SlurmPrologOptions& options);
Result<int> run_verb(const SlurmEpilogOptions& options);
Result<int> run_verb(const SlurmCommentOptions& options);
Result<int> run_verb(const SlurmJobsOptions& options);
Result<int> run_verb(const SlurmGpusOptions& options);
Result<int> run_verb(const SlurmReportOptions& options);
Result<int> run_verb(const DoctorOptions& options);
Result<int> run_verb(const ConfigCheckOptions& options);
Result<int> run_verb(const ConfigPrintOptions& options);
Result<int> run_verb(const ConfigSetOptions& options);
Result<int> run_verb(const ConfigDiffOptions& options);
Result<int> run_verb(const TokenCreateOptions& options);
Result<int> run_verb(const TokenListOptions& options);
Result<int> run_verb(const TokenRevokeOptions& options);
Result<int> run_verb(const LabRunOptions& options);
Result<int> run_verb(const LabCheckOptions& options);
Result<int> run_verb(const LabShowOptions& options);
Result<int> run_verb(const ReportOptions& options);
Result<int> run_verb(const LabExportOptions& options);
Result<int> run_verb(const LabImportOptions& options);
Result<int> run_verb(const LabLogOptions& options);
Result<int> run_verb(const LabAttributionOptions& options);
Result<int> run_verb(const LabSharesOptions& options);
Result<int> run_verb(const LabExampleOptions& options);
Result<int> run_verb(const LabWorkloadsOptions& options);
Result<int> run_verb(const CompletionOptions& options);
Result<int> run_verb(const ManualOptions& options);
Result<int> run_verb(const ExitCodesOptions& options);

}  // namespace derate::cli
