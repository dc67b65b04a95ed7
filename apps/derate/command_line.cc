#include "command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <sstream>
#include <string_view>
#include <tuple>

#include "api/operations.h"
#include "base/exit_code.h"
#include "base/suggest.h"
#include "base/text.h"
#include "command_words.h"
#include "completion.h"
#include "lab/tenants/tenant_world.h"
#include "manual.h"
#include "policy/registry/modes.h"
#include "policy/registry/registry.h"
#include "signal/heartbeats.h"
#include "terminal/output.h"
#include "tune/study/replay.h"
#include "version.h"

namespace derate::cli {
namespace {

constexpr const char* kSummary =
    "Runs GPUs at the least energy that still delivers the performance that was promised.";

constexpr const char* kStartHere =
    "New here? Begin with:\n"
    "  derate doctor                       what this machine allows\n"
    "  derate demo                         policies compared, on simulated GPUs\n"
    "  derate run -- python3 train.py      your own command, governed\n";

// The command line and the options it fills. `chosen` is set by the verb that was named.
struct CommandLine {
  CLI::App app{std::string(kSummary) + "\n\n" + kStartHere, "derate"};
  std::optional<Verb> chosen;
  // Options live as long as the app that writes into them.
  std::vector<std::shared_ptr<void>> options;

  template <class Options>
  Options& add_options(CLI::App& verb) {
    auto made = std::make_shared<Options>();
    options.push_back(made);
    // A verb that has verbs of its own stands back for the one that was named.
    verb.callback([this, made, &verb] {
      if (verb.get_subcommands().empty()) chosen = *made;
    });
    return *made;
  }
};

}  // namespace

std::string exit_code_text() {
  std::string out = "Exit codes:\n";
  for (const ExitCodeInfo& info : exit_codes())
    out += fmt::format("  {:>3}  {:<18} {}\n", info.code, info.name, info.meaning);
  return out;
}

namespace {

std::string examples(std::initializer_list<const char*> lines) {
  std::string out = "Examples:\n";
  for (const char* line : lines) out += fmt::format("  {}\n", line);
  return out;
}

// Unlike CLI::Range it refuses what is not a number.
CLI::Validator in_range(double lowest, double highest) {
  const std::string what = fmt::format("a number in [{}, {}]", lowest, highest);
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse_double(text);
        const bool good = value && *value >= lowest && *value <= highest;
        return good ? std::string() : fmt::format("'{}': allowed is {}", text, what);
      },
      what);
}

constexpr const char* kTimeForms = "10, 10s, 500ms, 2m or 1h";

// Of a time that an option takes.
struct TimeRange {
  double lowest_s, highest_s;
  const char* otherwise = nullptr;  // what holds without the option, where that has to be said
};

// An option whose value is a time, kept in seconds: the one form of times on the command line.
template <class Seconds>
CLI::Option* add_time(CLI::App& verb, const std::string& names, Seconds& seconds,
                      const std::string& what, const TimeRange& range) {
  const auto to_seconds = [range](std::string& text) {
    const auto value = parse_seconds(text);
    if (!value || !(*value >= range.lowest_s && *value <= range.highest_s))
      return fmt::format("'{}': allowed is a time such as {}, from {} s to {} s", text, kTimeForms,
                         range.lowest_s, range.highest_s);
    text = fmt::format("{}", *value);
    return std::string();
  };
  const std::string otherwise =
      range.otherwise == nullptr ? "" : fmt::format("; default: {}", range.otherwise);
  return verb.add_option(names, seconds, fmt::format("{}: {}{}", what, kTimeForms, otherwise))
      ->type_name("TIME")
      ->transform(CLI::Validator(to_seconds, ""));
}

// An empty value is an unset variable of the caller's, not a wish for the default.
CLI::Validator not_empty() {
  return CLI::Validator(
      [](std::string& text) { return text.empty() ? std::string("is empty") : std::string(); }, "");
}

CLI::Validator one_of(std::initializer_list<const char*> words) {
  const std::string known = fmt::format("{}", fmt::join(words, ", "));
  return CLI::Validator(
      [=](std::string& text) {
        for (const std::string_view word : split(known, ','))
          if (trim(word) == text) return std::string();
        return fmt::format("'{}'{}", text, choices(text, ": allowed are ", known));
      },
      "");
}

void add_json(CLI::App& verb, Common& common) {
  verb.add_flag("--json", common.json, "Print JSON (docs/json.md)");
}

// Of a verb that starts a command, which has standard output for itself.
void add_json_account(CLI::App& verb, Common& common) {
  verb.add_flag("--json", common.json,
                "The account as JSON: to -o FILE, else, beside a command, to standard error");
}

void add_config(CLI::App& verb, std::string& file) {
  verb.add_option("-c,--config", file,
                  "Configuration file; default: $DERATE_CONFIG, else /etc/derate/derate.toml")
      ->type_name("FILE");
}

void add_policy(CLI::App& verb, PolicyOptions& options) {
  std::string known;
  for (const PolicyInfo& info : policies())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  known += "; or mode:";
  for (const Mode& mode : modes()) known += fmt::format(" {}", mode.name);
  verb.add_option("-p,--policy", options.policy,
                  fmt::format("Policy: {}; default: the configuration's", known))
      ->type_name("POLICY");
  verb.add_option("--set", options.assignments, "Policy parameter NAME=VALUE; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  verb.add_option_function<std::string>(
          "--delta",
          [&options](const std::string& value) { options.assignments.push_back("delta=" + value); },
          "Performance that may be lost, in (0, 0.5]: short for --set delta=...")
      ->type_name("FRACTION");
  add_config(verb, options.config);
}

void add_gpu_choice(CLI::App& verb, std::string& gpus) {
  verb.add_option("-i,--gpu", gpus,
                  "GPUs by index, UUID or PCI bus id, comma-separated; default: all")
      ->type_name("GPUS");
}

// Of a command that is started here: its own, where the environment says which these are.
void add_own_gpu_choice(CLI::App& verb, GpuChoice& gpus) {
  CLI::Option* all = verb.add_flag("--all", gpus.all, "All GPUs of the machine");
  verb.add_option("-i,--gpu", gpus.named,
                  "GPUs by index, UUID or PCI bus id, comma-separated; default: those of "
                  "CUDA_VISIBLE_DEVICES, else of SLURM_JOB_GPUS")
      ->type_name("GPUS")
      ->excludes(all);
}

void add_sim(CLI::App& verb, SimCliOptions& options) {
  CLI::Option* sim =
      verb.add_option("--sim", options.chip, "Use simulated GPUs of this chip (derate sim list)")
          ->type_name("CHIP");
  verb.add_option("--app", options.workload,
                  "What the simulated GPU works on; default: the chip's first")
      ->type_name("WORKLOAD")
      ->needs(sim);
  verb.add_option("--tables", options.data,
                  "Take the workload from performance.csv and power.csv in this folder")
      ->type_name("DIR")
      ->needs(sim);
  verb.add_option("--sim-gpus,--gpus", options.gpus, "How many simulated GPUs")
      ->check(CLI::Range(1, 64))
      ->needs(sim);
  verb.add_option("--seed", options.seed, "Seed of the simulation")
      ->check(CLI::Range(0, 1 << 30))
      ->needs(sim);
}

void add_demo(CommandLine& line) {
  CLI::App* verb =
      line.app.add_subcommand("demo", "Compare policies on simulated GPUs, one table a chip");
  auto& options = line.add_options<DemoOptions>(*verb);
  verb->add_option("--data", options.data,
                   "Folder with measured tables (v100/performance.csv, ...): adds the comparison "
                   "on them")
      ->envname("DERATE_DATA")
      ->type_name("DIR");
  verb->add_option("--delta", options.delta, "Performance that may be lost, in (0, 0.5]")
      ->check(in_range(0.001, 0.5));
  verb->add_option("--seeds", options.seeds,
                   "Runs of each job with different noise; default: 1 and, on tables, 10")
      ->check(CLI::Range(1, 1000));
  add_time(*verb, "--job-seconds", options.job_seconds, "Length of a job at the top clock",
           {1, 86400, "2m"});
  verb->add_flag("--apps", options.apps, "Show every application too");
  add_json(*verb, options);
  verb->footer(examples(
      {"derate demo", "derate demo --apps --delta 0.05", "derate demo --data tables --json"}));
}

// Of every verb that runs a command on governed GPUs.
void add_command(CLI::App& verb, RunOptions& options) {
  verb.add_flag("--as-root", options.as_root,
                "Under sudo, run the command as root, not as the calling user");
  verb.add_flag("--shared", options.shared,
                "Govern GPUs beside other users' processes, too (root)");
  verb.add_flag("--no-launches", options.no_launches,
                "Do not count what the command launches (docs/progress.md)");
  verb.add_option("--records", options.records, "Write every tick as a line of JSON")
      ->type_name("FILE");
  verb.add_option("-o,--report", options.report, "Write the account there, not to standard error")
      ->type_name("FILE");
  add_sim(verb, options.sim);
  add_json_account(verb, options);
  verb.add_option("command", options.command, "The command and its arguments, after --")
      ->required();
  verb.positionals_at_end();
  verb.prefix_command(false);
}

constexpr const char* kKeepsExitCode =
    "The command's exit code is kept; Derate's own failures are 125, 126, 127 as for env(1).\n";

void add_run(CommandLine& line) {
  CLI::App* verb =
      line.app.add_subcommand("run", "Govern GPUs while a command runs, then say what it came to");
  auto& options = line.add_options<RunOptions>(*verb);
  add_own_gpu_choice(*verb, options.gpus);
  add_policy(*verb, options.policy);
  verb->add_flag("-n,--dry-run", options.dry_run, "Decide and record, never write");
  add_command(*verb, options);
  verb->footer(
      examples({"derate run -- python3 train.py", "derate run --dry-run -- python3 train.py",
                "derate run --delta 0.05 -i 0 --dry-run -- ./solver",
                "derate run --sim V100-SXM2 --app GeMM -- sleep 30"}) +
      kKeepsExitCode);
}

void add_energy(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "energy", "Measure the energy of GPUs while a command runs; writes to none");
  auto& options = line.add_options<EnergyOptions>(*verb);
  add_own_gpu_choice(*verb, options.gpus);
  add_time(*verb, "--interval", options.interval_s, "Time between readings of the power",
           {0.01, 60, "100ms"});
  CLI::Option* time =
      add_time(*verb, "--for", options.time_s, "How long", {0.001, 1e9, "until Ctrl-C"});
  verb->add_flag("--as-root", options.as_root,
                 "Under sudo, run the command as root, not as the calling user");
  verb->add_option("--log", options.log, "Write a line of CSV for each window, and one for all")
      ->type_name("FILE");
  verb->add_option("-o,--report", options.report, "Write the account there, not to the terminal")
      ->type_name("FILE");
  add_sim(*verb, options.sim);
  add_json_account(*verb, options);
  verb->add_option("command", options.command, "The command and its arguments, after --")
      ->excludes(time);
  verb->positionals_at_end();
  verb->prefix_command(false);
  verb->footer(
      examples({"derate energy -- python3 train.py", "derate energy --log epochs.csv -- ./train",
                "derate energy --for 10s -i 0 --json",
                "derate energy --sim H200 --app copy -- sleep 5"}) +
      "The command names windows of its own with clients/python/derate_client.py or\n"
      "src/wire/derate_client.h. Its exit code is kept; Derate's own failures are 125, 126, 127\n"
      "as for env(1). Needs no root.\n");
}

void add_attribute(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "attribute", "Show whose watts these are: instances, processes, pods, jobs, users");
  auto& options = line.add_options<AttributeOptions>(*verb);
  add_gpu_choice(*verb, options.gpus);
  add_time(*verb, "--interval", options.interval_s, "Time between pictures", {0.2, 60, "1s"});
  add_time(*verb, "--for", options.time_s, "How long", {0.001, 1e9, "until q"});
  verb->add_flag("--watch", options.watch,
                 "Go on also where there is no terminal; with --json a line each");
  verb->add_option("--method", options.method,
                   "How it is split (derate attribute methods); default: the configuration's")
      ->type_name("METHOD");
  verb->add_option("--idle-rule", options.idle_rule, "Who bears what an idle GPU draws")
      ->type_name("unallocated|by_slice|equal");
  CLI::Option* ticks =
      verb->add_option("--ticks", options.ticks, "Write each reading there as a line of JSON")
          ->type_name("FILE");
  verb->add_option("--replay", options.replay, "Split what such a file holds, not what is now")
      ->type_name("FILE")
      ->excludes(ticks);
  add_sim(*verb, options.sim);
  add_json(*verb, options);
  verb->footer(
      examples({"derate attribute", "derate attribute --for 30s --json",
                "derate attribute --ticks night.ticks --for 8h",
                "derate attribute --replay night.ticks --method equal"}) +
      "A running daemon answers; without one, or with --method, --idle-rule or --ticks, the\n"
      "GPUs are read directly. Reads only. 90 % of such values lie within the ± that is shown.\n");
  CLI::App* methods = verb->add_subcommand("methods", "List the ways to split energy");
  auto& methods_options = line.add_options<AttributeMethodsOptions>(*methods);
  add_json(*methods, methods_options);
  methods->footer(examples({"derate attribute methods"}));
}

void add_bill(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "bill", "Show who used how much energy, from what the daemon has kept");
  auto& options = line.add_options<BillOptions>(*verb);
  verb->add_option("--from", options.from,
                   "2026-11-01, 2026-11-01T12:00, -7d, now; default: the beginning of the month")
      ->type_name("WHEN");
  verb->add_option("--to", options.to, "The same; default: now")->type_name("WHEN");
  verb->add_option("--by", options.by, "What a line of the bill is; default: user")
      ->type_name("user|job|pod|container|instance|process|gpu|day");
  verb->add_option("-i,--gpu", options.gpus, "GPUs by UUID, comma-separated; default: all");
  verb->add_option("--price", options.price, "Of a kilowatt-hour; default: the configuration's")
      ->check(in_range(0, 1000));
  verb->add_option("--file", options.file, "What to read; default: what the daemon keeps")
      ->type_name("FILE");
  add_config(*verb, options.config);
  CLI::Option* csv = verb->add_flag("--csv", options.csv, "Print CSV");
  add_json(*verb, options);
  verb->get_option("--json")->excludes(csv);
  verb->footer(examples({"derate bill --from -7d --by user", "derate bill --by job --price 0.30",
                         "derate bill --from 2026-11-01 --to 2026-12-01 --by pod --csv"}) +
               "Lines and unallocated add up to what the boards used, to the millijoule. What is\n"
               "younger than a minute may be missing.\n");
}

constexpr const char* kWhenForms = "2026-11-01, 2026-11-01T12:00, 14:30, now-7d, today, month, now";

void add_history_file(CLI::App& verb, std::string& file) {
  verb.add_option("--file", file, "Read this history, not the daemon's")->type_name("FILE");
}

void add_csv(CLI::App& verb, bool& csv) {
  verb.add_flag("--csv", csv, "Print CSV")->excludes(verb.get_option("--json"));
}

void add_history(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "history", "Show what GPUs and their tenants drew, at which clocks, and what was saved");
  auto& options = line.add_options<HistoryOptions>(*verb);
  add_gpu_choice(*verb, options.gpus);
  verb->add_option("--from", options.from, fmt::format("{}; default: now-6h", kWhenForms))
      ->type_name("WHEN");
  verb->add_option("--to", options.to, "The same; default: now")->type_name("WHEN");
  verb->add_option("--what", options.what, "What the picture is of; default: power")
      ->type_name("power|clock|energy|utilisation|temperature|saving|performance");
  verb->add_flag("--tenants", options.tenants, "Of those who share GPUs, not of GPUs");
  verb->add_option("--points", options.points,
                   "Steps become longer until there are so many at most; default: 1000")
      ->check(CLI::Range(1, 10000));
  add_history_file(*verb, options.file);
  add_json(*verb, options);
  add_csv(*verb, options.csv);
  verb->footer(
      examples({"derate history", "derate history -i 0 --from now-30d --what clock",
                "derate history --from today --tenants",
                "derate history --from 2026-11-01 --to 2026-11-02 --csv > day.csv"}) +
      "Seconds are kept for a day, minutes for 90 days, hours for five years. Blank is what\n"
      "nobody read. Times are of this machine's zone.\n");
}

void add_savings(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "savings", "Show what was used and saved: energy, money and carbon dioxide");
  auto& options = line.add_options<SavingsOptions>(*verb);
  verb->add_option("--by", options.by, "What a line is of; default: day")
      ->type_name("day|gpu|job|user|policy");
  verb->add_option("--from", options.from, fmt::format("{}; default: month", kWhenForms))
      ->type_name("WHEN");
  verb->add_option("--to", options.to, "The same; default: now")->type_name("WHEN");
  verb->add_option("--prices", options.prices,
                   "CSV by hour: time, price_per_kwh, co2_g_per_kwh (docs/history.md)")
      ->type_name("FILE");
  verb->add_option("--price", options.price, "Of a kilowatt-hour; default: the configuration's")
      ->check(in_range(0, 1000));
  verb->add_option("--co2", options.co2,
                   "Grams of carbon dioxide of a kilowatt-hour; default: the configuration's")
      ->type_name("GRAMS")
      ->check(in_range(0, 10000));
  add_history_file(*verb, options.file);
  add_config(*verb, options.config);
  add_json(*verb, options);
  add_csv(*verb, options.csv);
  verb->footer(
      examples({"derate savings", "derate savings --by job --from now-7d --price 0.30",
                "derate savings --from 2026-10-01 --to 2026-11-01 --prices october.csv --csv"}) +
      "What was saved is an estimate (docs/saving.md), with its 90 % interval. An hour belongs to\n"
      "the day in which it begins. Hours that the file of prices leaves out are told.\n");
}

void add_why(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "why", "Tell why a GPU's clock is, or was, what it is, and how it changed before");
  auto& options = line.add_options<WhyOptions>(*verb);
  verb->add_option("-i,--gpu", options.gpu, "GPU by index, UUID or PCI bus id; default: 0")
      ->type_name("GPU");
  verb->add_option("--at", options.at, fmt::format("{}; default: now", kWhenForms))
      ->type_name("WHEN");
  verb->add_option("--changes", options.changes, "How many to list; default: 10")
      ->check(CLI::Range(1, 1000));
  add_history_file(*verb, options.file);
  add_json(*verb, options);
  verb->footer(examples({"derate why -i 0", "derate why -i 0 --at 14:30",
                         "derate why -i 0 --at now-2h --json"}) +
               "Any second of the last day is known.\n");
}

void add_advise(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "advise", "Say what holds a work back, by what evidence, and what to try");
  auto& options = line.add_options<AdviseOptions>(*verb);
  CLI::Option* traces = verb->add_option("traces", options.traces,
                                         "Traces of `derate record` instead of GPUs, one a GPU")
                            ->type_name("FILE");
  verb->add_option("-i,--gpu", options.gpus,
                   "GPUs by index, UUID or PCI bus id, comma-separated; default: all")
      ->type_name("GPUS")
      ->excludes(traces);
  add_time(*verb, "--for,--seconds", options.seconds, "How long they are watched",
           {5, 86400, "1m"});
  add_time(*verb, "--interval", options.interval_s, "Time between samples", {0.05, 10, "100ms"});
  verb->add_option("--label", options.label, "Of a trace only the phases of that label")
      ->type_name("TEXT")
      ->needs(traces);
  verb->add_flag("--one-job", options.one_job,
                 "The GPUs work on one job: say whether they wait for each other");
  verb->add_flag("--list", options.list, "List what can be advised, and which sensors tell it");
  CLI::Option* history =
      verb->add_flag("--history", options.history,
                     "Say what promises have come to, and what others would have, by what is kept "
                     "of these GPUs")
          ->excludes(traces);
  verb->add_option("--from", options.from, fmt::format("{}; default: now-7d", kWhenForms))
      ->type_name("WHEN")
      ->needs(history);
  verb->add_option("--to", options.to, "The end; default: now")->type_name("WHEN")->needs(history);
  add_history_file(*verb, options.file);
  verb->get_option("--file")->needs(history);
  add_sim(*verb, options.sim);
  add_json(*verb, options);
  verb->footer(examples({"derate advise", "derate advise -i 0,1,2,3 --one-job --for 5m",
                         "derate advise gpu0.trace", "derate advise --sim H200 --app copy",
                         "derate advise --history --from now-30d -i 0", "derate advise --list"}) +
               "Nothing is set on a GPU. Watch a part of the work that is typical of it.\n");
}

void add_ui(CommandLine& line) {
  CLI::App* verb =
      line.app.add_subcommand("ui", "Show the fleet, its GPUs and savings in a browser");
  auto& options = line.add_options<UiOptions>(*verb);
  verb->add_option("-l,--listen", options.listen,
                   "A loopback address and port; default: 127.0.0.1 and any port")
      ->type_name("ADDRESS:PORT");
  verb->add_flag("--no-open", options.no_open, "Print the address and open no browser");
  verb->footer(examples({"derate ui", "derate ui --no-open --listen 127.0.0.1:9411",
                         "ssh -L 9411:127.0.0.1:9411 gpu7 derate ui --no-open -l 127.0.0.1:9411"}) +
               "It asks derated as you, and shows what you may see. Ctrl-C ends it.\n");
}

void add_events(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand("events", "List what happened, and to which GPU");
  auto& options = line.add_options<EventsOptions>(*verb);
  verb->add_option("-i,--gpu", options.gpu,
                   "GPU by index, UUID or PCI bus id; default: all, and the service")
      ->type_name("GPU");
  verb->add_option("--from", options.from, fmt::format("{}; default: now-1d", kWhenForms))
      ->type_name("WHEN");
  CLI::Option* to =
      verb->add_option("--to", options.to, "The same; default: now")->type_name("WHEN");
  CLI::Option* follow =
      verb->add_flag("-f,--follow", options.follow, "Go on with what happens, until Ctrl-C")
          ->excludes(to);
  add_history_file(*verb, options.file);
  verb->get_option("--file")->excludes(follow);
  add_json(*verb, options);
  verb->footer(examples({"derate events", "derate events -i 0 --from today",
                         "derate events --follow", "derate events --follow --json"}) +
               "docs/events.md lists them. With --follow, --json prints a line for each.\n");
}

void add_status(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "status", "Show each GPU, who governs it, and why its clock is what it is");
  auto& options = line.add_options<StatusOptions>(*verb);
  add_gpu_choice(*verb, options.gpus);
  add_json(*verb, options);
  verb->footer(examples({"derate status", "derate status -i 0 --json"}));
}

void add_beat(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand(
      "beat", "Tell the daemon how far the work is, in its own steps, tokens or requests");
  auto& options = line.add_options<BeatOptions>(*verb);
  CLI::Option* done = verb->add_option("--done", options.done, "Work done since its beginning")
                          ->type_name("NUMBER")
                          ->check(in_range(0, kMostDone));
  verb->add_flag("--stdin", options.from_stdin,
                 "Read such numbers, one a line, until the end; other lines are passed on")
      ->excludes(done);
  verb->add_option("--phase", options.phase, "What it is doing, in one word")->type_name("NAME");
  verb->add_option("--max-loss", options.max_loss,
                   "Performance that it may lose, in [0, 0.5]; at most the daemon's max_delta")
      ->type_name("FRACTION")
      ->check(in_range(0, 0.5));
  verb->add_option("-i,--gpu", options.gpu,
                   "The GPUs that it works on; default: those of the calling process")
      ->type_name("GPUS");
  CLI::Option* announce =
      verb->add_flag("--announce", options.announce,
                     "Only say DERATE_DELTA and SLURM_JOB_ID of this environment, which the daemon "
                     "may not be able to read; nothing happens where neither is set")
          ->excludes("--done", "--stdin", "--phase", "--max-loss", "--gpu");
  verb->add_option("--pid", options.pid,
                   "With --announce: of that process and those below it in its session; default: "
                   "the calling one")
      ->type_name("PID")
      ->check(CLI::Range(1, std::numeric_limits<std::int32_t>::max()))
      ->needs(announce);
  verb->footer(examples({"derate beat --done 1200", "train | derate beat --stdin",
                         "derate beat --done 17 --phase prefill --max-loss 0.05 -i 0",
                         "derate beat --announce --pid $SLURM_TASK_PID"}) +
               "Only the owner of a process on the GPU is believed, and root.\n");
}

void add_model_verbs(CommandLine& line, CLI::App& group) {
  CLI::App* models =
      group.add_subcommand("models", "List what is kept of work, to know it when it comes again");
  auto& options = line.add_options<PolicyModelsOptions>(*models);
  CLI::App* forget = group.add_subcommand("forget", "Delete models of work");
  auto& forget_options = line.add_options<PolicyForgetOptions>(*forget);
  for (auto [one, its] :
       {std::pair<CLI::App*, PolicyModelsOptions*>{models, &options}, {forget, &forget_options}}) {
    one->add_flag("--simulated", its->simulated, "Those of simulated GPUs");
    add_json(*one, *its);
  }
  CLI::Option* ids =
      forget->add_option("id", forget_options.ids, "Models, as derate policy models numbers them");
  forget->add_flag("--all", forget_options.all, "All of them")->excludes(ids);
  models->footer(examples({"derate policy models", "derate policy models --json"}) +
                 "Performance is relative to the reference, +- one standard deviation.\n");
  forget->footer(examples({"derate policy forget 7", "derate policy forget --all"}) +
                 "A governor that runs keeps what it knows: it ends first.\n");
}

void add_policy_verbs(CommandLine& line) {
  CLI::App* group = line.app.add_subcommand("policy", "List policies and their parameters");
  group->require_subcommand(1);
  CLI::App* list = group->add_subcommand("list", "List the policies");
  add_json(*list, line.add_options<PolicyListOptions>(*list));
  CLI::App* show = group->add_subcommand("show", "Describe a policy and its parameters");
  auto& options = line.add_options<PolicyShowOptions>(*show);
  show->add_option("name", options.name, "The policy")->required()->type_name("POLICY");
  add_json(*show, options);
  CLI::App* set = group->add_subcommand("set", operation<PolicySet>().what);
  auto& set_options = line.add_options<PolicySetOptions>(*set);
  set->add_option("name", set_options.policy.policy, "The policy")->required()->type_name("POLICY");
  add_gpu_choice(*set, set_options.gpus);
  set->add_option("--set", set_options.policy.assignments,
                  "Policy parameter NAME=VALUE; may be repeated")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  set->add_option_function<std::string>(
         "--delta",
         [&set_options](const std::string& value) {
           set_options.policy.assignments.push_back("delta=" + value);
         },
         "Performance that may be lost, in (0, 0.5]: short for --set delta=...")
      ->type_name("FRACTION");
  set->add_flag("-n,--dry-run", set_options.dry_run, "Decide and record, never write");
  add_time(*set, "--confirm-within", set_options.confirm_within_s,
           "What governed before comes back after that, unless `derate policy confirm` comes first",
           {1, 3600, "it never does"});
  add_json(*set, set_options);
  set->footer(
      examples({"derate policy set geepafs -i 0 --delta 0.05", "derate policy set efficient-fix",
                "derate policy set assure --delta 0.2 --confirm-within 5m"}) +
      "It holds until the daemon ends or `derate release`; the configuration's govern = true "
      "is for good.\n");
  CLI::App* confirm = group->add_subcommand("confirm", operation<PolicyConfirm>().what);
  auto& confirm_options = line.add_options<PolicyConfirmOptions>(*confirm);
  add_gpu_choice(*confirm, confirm_options.gpus);
  confirm->add_flag("--revert", confirm_options.revert,
                    "It is not kept: what governed before comes back now");
  add_json(*confirm, confirm_options);
  confirm->footer(examples({"derate policy confirm -i 0", "derate policy confirm"}));
  CLI::App* forecast = group->add_subcommand("forecast", operation<ForecastRead>().what);
  auto& forecast_options = line.add_options<PolicyForecastOptions>(*forecast);
  add_gpu_choice(*forecast, forecast_options.gpus);
  add_json(*forecast, forecast_options);
  forecast->footer(examples({"derate policy forecast -i 0", "derate policy forecast --json"}) +
                   "Of the minutes after it would be promised, each with the ends that it is 90 % "
                   "sure between.\n");
  list->footer(examples({"derate policy list", "derate policy list --json"}));
  show->footer(examples({"derate policy show geepafs"}));
  add_model_verbs(line, *group);
  group->footer(examples({"derate policy list", "derate policy show geepafs"}));
}

// "batch_sizes" is --batch-sizes, the name stands by itself.
std::string option_of(const JobField& field) {
  std::string out = field.key;
  if (out == "name") return out;
  std::replace(out.begin(), out.end(), '_', '-');
  return "--" + out;
}

void add_job_create(CommandLine& line, CLI::App& job) {
  CLI::App* create = job.add_subcommand("create", operation<JobCreate>().what);
  auto& options = line.add_options<TuneJobCreateOptions>(*create);
  visit_job_spec(options.spec, [&]<class T>(const JobField& field, T& value) {
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      option = create->add_flag(option_of(field), value, field.summary);
    } else {
      option = create->add_option(option_of(field), value, field.summary)->type_name(field.type);
      if constexpr (std::is_same_v<T, std::vector<int>>)
        option->delimiter(',')->allow_extra_args(false);
    }
    if (field.required) option->required();
  });
  create->add_flag("--replace", options.replace,
                   "Where another job has that name, forget it and its history");
  add_json(*create, options);
  create->footer(
      examples({"derate tune job create bert --batch-sizes 8,16,32 --default 32 --target 0.84 "
                "--max-epochs 20",
                "derate tune job create lm --batch-sizes 16,32,64 --default 32 --target 3.2 "
                "--lower-is-better --max-epochs 40 --eta 1"}) +
      "The same again changes nothing; another of that name is refused without --replace.\n");
}

void add_tune_job_verbs(CommandLine& line, CLI::App& tune) {
  CLI::App* job = tune.add_subcommand("job", "Jobs that recur, and their history");
  job->require_subcommand(1);
  add_job_create(line, *job);
  CLI::App* list = job->add_subcommand("list", operation<JobList>().what);
  add_json(*list, line.add_options<TuneJobListOptions>(*list));
  list->footer(examples({"derate tune job list", "derate tune job list --json"}));
  CLI::App* show = job->add_subcommand("show", operation<JobShow>().what);
  auto& show_options = line.add_options<TuneJobShowOptions>(*show);
  show->add_option("name", show_options.name, "The job")->required();
  add_json(*show, show_options);
  show->footer(examples({"derate tune job show bert"}));
  CLI::App* remove = job->add_subcommand("remove", operation<JobRemove>().what);
  auto& remove_options = line.add_options<TuneJobRemoveOptions>(*remove);
  remove->add_option("name", remove_options.name, "The job")->required();
  add_json(*remove, remove_options);
  remove->footer(examples({"derate tune job remove bert"}));
  job->footer(examples({"derate tune job list", "derate tune job show bert"}));
}

void add_safety_verbs(CommandLine& line) {
  CLI::App* top = line.app.add_subcommand("top", "Show the GPUs live; q or Ctrl-C ends it");
  auto& top_options = line.add_options<TopOptions>(*top);
  add_gpu_choice(*top, top_options.gpus);
  add_time(*top, "--interval", top_options.interval_s, "Time between two pictures",
           {0.1, 60, "1s"});
  top->add_option("--rounds", top_options.rounds, "Pictures until it ends; default: no end")
      ->check(CLI::Range(1, 1 << 30));
  add_json(*top, top_options);
  top->footer(examples({"derate top", "derate top --rounds 1"}));

  CLI::App* restore = line.app.add_subcommand(
      "restore", "Put back what governors that died have left on GPUs, from their journals");
  auto& restore_options = line.add_options<RestoreOptions>(*restore);
  restore->add_option("-i,--gpu", restore_options.gpus,
                      "One GPU by its UUID or the beginning of it; default: all with a journal");
  add_time(*restore, "--wait", restore_options.wait_s,
           "How long to wait for a governor that is just ending", {0, 600, "not at all"});
  add_json(*restore, restore_options);
  restore->footer(
      examples({"derate restore", "derate restore --wait 10", "derate restore --json"}) +
      "A GPU that a living governor holds is left alone (exit code 75). While a journal is left\n"
      "that nobody would restore the exit code is 1.\n");

  CLI::App* release = line.app.add_subcommand("release", operation<Release>().what);
  auto& release_options = line.add_options<ReleaseOptions>(*release);
  release
      ->add_option("-i,--gpu", release_options.gpus,
                   "GPUs by index, UUID or PCI bus id, comma-separated")
      ->type_name("GPUS");
  release->add_flag("--all", release_options.all, "All GPUs");
  add_json(*release, release_options);
  release->footer(examples({"derate release -i 0", "derate release --all"}));

  CLI::App* pause = line.app.add_subcommand("pause", operation<Pause>().what);
  add_json(*pause, line.add_options<PauseOptions>(*pause));
  pause->footer(examples({"derate pause && nvidia-smi -i 0 -mig 1; derate resume"}));
  CLI::App* resume = line.app.add_subcommand("resume", operation<Resume>().what);
  add_json(*resume, line.add_options<ResumeOptions>(*resume));
  resume->footer(examples({"derate resume"}));
}

void add_record(CommandLine& line) {
  CLI::App* verb = line.app.add_subcommand("record", "Write a trace of a GPU");
  auto& options = line.add_options<RecordOptions>(*verb);
  verb->add_option("-o,--output", options.output, "The trace to write")
      ->required()
      ->type_name("FILE");
  verb->add_option("-i,--gpu", options.gpu, "The GPU, by index, UUID or PCI bus id; default: 0")
      ->type_name("GPUS");
  add_time(*verb, "--for,--seconds", options.seconds, "How long",
           {0.1, 1e7, "until Ctrl-C (a simulated GPU needs it)"});
  add_time(*verb, "--interval", options.interval_s, "Time between samples", {0.01, 60, "100ms"});
  verb->add_flag("-f,--force", options.force, "Overwrite the file");
  add_sim(*verb, options.sim);
  add_json(*verb, options);
  verb->footer(examples(
      {"derate record -o gpu0.trace --for 1m", "derate record -o sim.trace --sim H200 --for 1m"}));
}

void add_replay(CommandLine& line) {
  CLI::App* verb =
      line.app.add_subcommand("replay", "Drive the loop from a recorded trace, as a dry run");
  auto& options = line.add_options<ReplayOptions>(*verb);
  verb->add_option("trace", options.trace,
                   "A trace of `derate record`, or CSV (docs/trace-format.md)")
      ->required()
      ->type_name("FILE");
  add_policy(*verb, options.policy);
  verb->add_option("--chip", options.chip,
                   "The chip of a CSV trace; default: told from its memory clock")
      ->type_name("CHIP");
  verb->add_option("--records", options.records, "Write every tick as a line of JSON")
      ->type_name("FILE");
  add_json(*verb, options);
  verb->footer(examples(
      {"derate replay gpu0.trace", "derate replay --policy utiliz-scale --json gpu0.trace"}));
}

void add_sim_directory(CLI::App& verb, SimDirectory& options) {
  verb.add_option("--dir", options.directory,
                  "Where the simulated GPUs are served; default: $DERATE_SIM, else sim in the run "
                  "directory")
      ->type_name("DIR");
}

void add_sim_serve(CommandLine& line, CLI::App& sim) {
  CLI::App* verb = sim.add_subcommand(
      "serve", "Serve simulated GPUs to any NVML client, in real time, until Ctrl-C");
  auto& options = line.add_options<SimServeOptions>(*verb);
  verb->add_option("--chip", options.chips,
                   "Chips (derate sim list), comma-separated or repeated; default: V100-SXM2")
      ->type_name("CHIP")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--gpus", options.gpus,
                   "How many GPUs, of the chips in turn; default: one of each chip")
      ->check(CLI::Range(1, 64));
  verb->add_option("--seed", options.seed, "Seed of the simulation")->check(CLI::Range(0, 1 << 30));
  verb->add_option("--mig", options.mig,
                   "MIG mode on every GPU, with instances of these profiles: 3g,2g,1g,1g; none: "
                   "with no instance");
  verb->add_option("--speed", options.speed, "Simulated seconds a second, for long tests")
      ->check(in_range(0.01, 10'000));
  add_sim_directory(*verb, options);
  add_json(*verb, options);
  verb->footer(examples({"derate sim serve --chip H200 --gpus 8",
                         "derate sim serve --chip V100-SXM2,H200 --dir /tmp/gpus"}));
}

void add_sim_job(CommandLine& line, CLI::App& sim) {
  CLI::App* verb =
      sim.add_subcommand("job", "Occupy a served GPU with work, then say what it came to");
  auto& options = line.add_options<SimJobOptions>(*verb);
  verb->add_option("workload", options.workload,
                   "What to run (derate sim list); default: the chip's first")
      ->type_name("WORKLOAD");
  add_time(*verb, "--work", options.work_s, "How much, as time at the highest clock",
           {0, 1e9, "until Ctrl-C"});
  verb->add_option("-i,--gpu", options.gpu, "The GPU, by index, UUID or PCI bus id; default: 0")
      ->type_name("GPUS");
  verb->add_option("--instance", options.instance, "With MIG: the instance, by its id")
      ->type_name("ID")
      ->check(in_range(1, 1000));
  verb->add_option("--tables", options.tables,
                   "Take the workload from performance.csv and power.csv in this folder")
      ->type_name("DIR");
  verb->add_flag("--beat", options.beat, "Say each second how far it is, as applications can");
  verb->add_option("--launches", options.launches,
                   "Launch kernels as in this recording, for who counts them (docs/progress.md)")
      ->type_name("FILE");
  add_sim_directory(*verb, options);
  add_json(*verb, options);
  verb->footer(
      examples({"derate sim job GeMM --work 120s", "derate sim job -i 1 --work 2m --json"}));
}

void add_sim_show(CommandLine& line, CLI::App& sim) {
  CLI::App* verb = sim.add_subcommand(
      "show", "Show the settings, faults and truth of served GPUs, which no driver tells");
  auto& options = line.add_options<SimShowOptions>(*verb);
  add_gpu_choice(*verb, options.gpus);
  add_sim_directory(*verb, options);
  add_json(*verb, options);
  verb->footer(examples({"derate sim show", "derate sim show -i 0 --json"}));
}

void add_sim_fault(CommandLine& line, CLI::App& sim) {
  CLI::App* verb = sim.add_subcommand("fault", "Let something go wrong with served GPUs");
  auto& options = line.add_options<SimFaultOptions>(*verb);
  add_gpu_choice(*verb, options.gpus);
  CLI::Option* call =
      verb->add_option("--call", options.call,
                       "An NVML function, or the beginning of its name and *: what to spoil")
          ->type_name("NAME");
  verb->add_option("--fails", options.fails, "It fails with this code: a number or its NVML name")
      ->type_name("CODE")
      ->needs(call);
  verb->add_flag("--hangs", options.hangs, "It does not return until faults are cleared")
      ->needs(call);
  verb->add_option("--skip", options.skip, "... after so many calls went well")
      ->check(CLI::Range(0, 1 << 30))
      ->needs(call);
  verb->add_option("--times", options.times, "... so many times; default: for ever")
      ->check(CLI::Range(1, 1 << 30))
      ->needs(call);
  verb->add_flag("--lost", options.lost, "The GPU is lost; it comes back without its settings");
  verb->add_flag("--writes-ignored", options.writes_ignored, "Writes succeed and do nothing");
  verb->add_option("--counters", options.counters, "What the energy counter does")
      ->check(one_of({"frozen", "backwards", "wrapped", "jump"}))
      ->type_name("frozen|backwards|wrapped|jump");
  verb->add_flag("--absurd", options.absurd, "Sensors show numbers that cannot be");
  verb->add_flag("--mig", options.mig, "MIG is switched on: no utilisation, settings gone");
  CLI::Option* kill =
      verb->add_option("--kill-writer", options.kill_writer,
                       "Kill the process that writes, before or after it took effect")
          ->check(one_of({"before", "after"}))
          ->type_name("before|after");
  verb->add_option("--at", options.at, "... at this write from now on")
      ->check(CLI::Range(1, 1 << 30))
      ->needs(kill);
  verb->add_flag("--clear", options.clear, "Make everything well again");
  add_sim_directory(*verb, options);
  verb->footer(examples({"derate sim fault --call nvmlDeviceGetPowerUsage --fails timeout",
                         "derate sim fault --call 'nvmlDeviceSet*' --fails no_permission --skip 2",
                         "derate sim fault -i 0 --lost", "derate sim fault --clear"}));
}

void add_sim_verbs(CommandLine& line) {
  CLI::App* sim = line.app.add_subcommand("sim", "Simulated GPUs");
  sim->require_subcommand(1);
  CLI::App* list = sim->add_subcommand("list", "List chips and workloads, with their sources");
  auto& options = line.add_options<SimListOptions>(*list);
  list->add_option("chip", options.chip, "One chip; default: all")->type_name("CHIP");
  add_json(*list, options);
  list->footer(examples({"derate sim list", "derate sim list H200 --json"}));
  add_sim_serve(line, *sim);
  add_sim_job(line, *sim);
  add_sim_show(line, *sim);
  add_sim_fault(line, *sim);
  sim->footer(examples({"derate sim list H200 --json", "derate sim serve --chip H200 --gpus 8",
                        "derate sim job GEMM --work 60s", "derate sim show"}));
}

void add_data(CLI::App& verb, std::string& data) {
  verb.add_option("--data", data, "Folder of the measured tables; default: as when it was run")
      ->envname("DERATE_DATA")
      ->type_name("DIR");
}

constexpr const char* kCellsHelp = "Of a stress grid show every cell, not the grid alone";

void add_lab_run(CommandLine& line, CLI::App& lab) {
  CLI::App* run = lab.add_subcommand("run", "Run an experiment, or what of it is left to run");
  auto& options = line.add_options<LabRunOptions>(*run);
  run->add_option("experiment", options.experiment, "The experiment, a TOML file")
      ->required()
      ->type_name("FILE");
  run->add_option("-o,--output", options.results,
                  "Where the results go; default: beside the experiment, with .lab for its ending")
      ->type_name("FILE");
  add_data(*run, options.data);
  run->add_option("--threads", options.threads, "Sessions at a time; default: one a core")
      ->check(CLI::Range(1u, 1024u));
  run->add_flag("--fresh", options.fresh, "Begin anew: what is in the results is dropped");
  run->add_flag("--dry-run", options.dry_run,
                "In place real: policies decide and record, nothing is ever written");
  run->add_flag("--apps", options.apps, "Show every application");
  run->add_flag("--cells", options.cells, kCellsHelp);
  add_json(*run, options);
  run->footer(examples({"derate lab example > mine.toml", "derate lab run mine.toml"}) +
              "Ctrl-C ends it after the sessions that run; the same command goes on from there.\n");
}

void add_lab_files(CommandLine& line, CLI::App& lab) {
  CLI::App* exported =
      lab.add_subcommand("export", "Write an experiment's results as CSV and JSON");
  auto& out = line.add_options<LabExportOptions>(*exported);
  exported->add_option("results", out.results, "What `derate lab run` wrote")
      ->required()
      ->type_name("FILE");
  exported->add_option("folder", out.folder, "Where the files go; made when it is not there")
      ->required();
  add_data(*exported, out.data);
  add_json(*exported, out);
  exported->footer(
      examples({"derate lab export mine.lab mine-files"}) +
      "Also the files that the published GEEPAFS experiments leave, a set a policy.\n");

  CLI::App* import =
      lab.add_subcommand("import", "Check measured tables and keep them for experiments");
  auto& tables = line.add_options<LabImportOptions>(*import);
  import->add_option("--performance", tables.performance, "Applications by clock, any unit")
      ->required()
      ->type_name("CSV");
  import->add_option("--power", tables.power, "The same in watts")->required()->type_name("CSV");
  import->add_option("--utilisation", tables.utilisation, "What the counters showed, percent")
      ->type_name("CSV");
  import->add_option("--chip", tables.chip, "The chip that they were measured on")
      ->type_name("CHIP");
  import->add_option("folder", tables.folder, "Where they go")->required();
  add_json(*import, tables);
  import->footer(
      examples({"derate lab import --performance perf.csv --power power.csv my-tables"}) +
      "In an experiment: [workloads] imported = \"my-tables\"\n");

  CLI::App* log = lab.add_subcommand("log", "Sum up a log of the published GEEPAFS daemon");
  auto& log_options = line.add_options<LabLogOptions>(*log);
  log->add_option("log", log_options.log, "dvfs_*.out")->required()->type_name("FILE");
  add_json(*log, log_options);
  log->footer(examples({"derate lab log dvfs_Assure_p90.out"}));
}

void add_lab_attribution(CommandLine& line, CLI::App& lab) {
  std::string scenarios;
  for (const TenantScenario& scenario : tenant_scenarios())
    scenarios += fmt::format("{}{}", scenarios.empty() ? "" : ", ", scenario.name);
  CLI::App* verb = lab.add_subcommand(
      "attribution", "Judge the methods that split a GPU's power, where the truth is known");
  auto& options = line.add_options<LabAttributionOptions>(*verb);
  verb->add_option("--scenario", options.scenarios,
                   fmt::format("Only these, of {}; default: all", scenarios))
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--method", options.methods,
                   "Only these, as the tables name them, or with and without what is in brackets; "
                   "default: all")
      ->delimiter(',');
  verb->add_option("--seeds", options.seeds, "Runs of each scenario")->check(CLI::Range(1, 1000));
  verb->add_option("--first-seed", options.first_seed, "The first run's seed; the others follow");
  verb->add_option("--minutes", options.minutes, "Length of a run, simulated")
      ->check(CLI::Range(6, 1440));
  verb->add_option("-j,--jobs", options.threads, "Runs at a time; default: one a core")
      ->type_name("THREADS")
      ->check(CLI::Range(1u, 1024u));
  add_json(*verb, options);
  verb->footer(
      examples({"derate lab attribution", "derate lab attribution --scenario A,B --seeds 2",
                "derate lab attribution --method online,equal --json"}) +
      "docs/attribute-results.md says what the scenarios and the figures are.\n");
}

void add_lab_verbs(CommandLine& line) {
  CLI::App* lab = line.app.add_subcommand("lab", "Experiments: policies on GPUs, side by side");
  lab->require_subcommand(1);
  add_lab_run(line, *lab);
  CLI::App* show = lab->add_subcommand("show", "Show the figures of an experiment's results");
  auto& options = line.add_options<LabShowOptions>(*show);
  show->add_option("results", options.results, "What `derate lab run` wrote")
      ->required()
      ->type_name("FILE");
  add_data(*show, options.data);
  show->add_flag("--apps", options.apps, "Show every application");
  show->add_flag("--cells", options.cells, kCellsHelp);
  show->add_option("--policy", options.policies, "Only these policies, by label")
      ->type_name("LABEL")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_json(*show, options);
  show->footer(examples({"derate lab show mine.lab --apps", "derate lab show mine.lab --json"}));
  add_lab_files(line, *lab);
  CLI::App* check = lab->add_subcommand("check", "Check an experiment, and say what it would run");
  auto& check_options = line.add_options<LabCheckOptions>(*check);
  check->add_option("experiment", check_options.experiment, "The experiment, a TOML file")
      ->required()
      ->type_name("FILE");
  add_data(*check, check_options.data);
  add_json(*check, check_options);
  check->footer(examples({"derate lab check mine.toml"}));
  add_lab_attribution(line, *lab);
  CLI::App* example = lab->add_subcommand("example", "Print an experiment, with comments");
  line.add_options<LabExampleOptions>(*example);
  example->footer(examples({"derate lab example > mine.toml"}));
  CLI::App* workloads = lab->add_subcommand("workloads", "List the mixes of phases");
  add_json(*workloads, line.add_options<LabWorkloadsOptions>(*workloads));
  workloads->footer(examples({"derate lab workloads"}));
  lab->footer(examples({"derate lab example > mine.toml", "derate lab run mine.toml",
                        "derate lab show mine.lab --apps"}));
}

// What tunes the run, with a job or without.
void add_knob(CLI::App& verb, TuneRunOptions& options, CLI::Option* job) {
  verb.add_option("--selector", options.selector,
                  "Without a job: what is best, energy, time, cost:ETA with ETA in [0, 1], "
                  "max-slowdown:FACTOR with FACTOR in [1, 2]; default: cost:0.5")
      ->excludes(job);
  verb.add_option("--knob", options.knob, "Without a job: what is turned; default: power-limit")
      ->type_name("power-limit|clock")
      ->excludes(job);
  verb.add_option("--model", options.model,
                  "Without a job: what the daemon knows under this tag is used, and kept")
      ->excludes(job);
  verb.add_option("--highest", options.highest_w,
                  "Highest power limit that may be used; default: the one found on the GPUs")
      ->type_name("WATTS")
      ->check(in_range(1, 10'000))
      ->excludes(job);
  verb.add_option("--guard", options.guard,
                  "Time that the command may take at most, over that at the highest setting; "
                  "default: 1.5")
      ->type_name("FACTOR")
      ->check(in_range(1, 2))
      ->excludes(job);
}

// How the daemon is told of the metric.
void add_metric(CLI::App& verb, TuneRunOptions& options) {
  verb.add_option("--metric-pattern", options.metric_pattern,
                  "An extended regular expression: where it matches in a line, its first group is "
                  "the metric; default: lines such as 'derate: epoch=3 metric=0.61'")
      ->type_name("REGEX");
  verb.add_option("--epoch-pattern", options.epoch_pattern,
                  "The same for the number of epochs done; default: each metric is an epoch")
      ->type_name("REGEX");
  verb.add_option("--metric-file", options.metric_file,
                  "A file with a line for each epoch: its last is the metric")
      ->type_name("FILE");
  verb.add_option("--oom-pattern", options.oom_patterns,
                  "A line that says that the batch size does not fit into memory, when the command "
                  "fails; may be repeated; beside those of CUDA and PyTorch")
      ->type_name("REGEX")
      ->allow_extra_args(false);
  add_time(verb, "--grace", options.grace_s,
           "Time between SIGTERM and SIGKILL for a command that is to stop", {0, 3600, "10s"});
  verb.add_flag("--no-retry", options.no_retry, "One try, also where it does not reach the target");
}

void add_tune_run(CommandLine& line, CLI::App& tune) {
  CLI::App* run = tune.add_subcommand(
      "run", "Run a job with the batch size that its history asks for, and tune its GPUs");
  auto& options = line.add_options<TuneRunOptions>(*run);
  CLI::Option* job = run->add_option("--job", options.job,
                                     "The job; default: none, only its limit or clock is tuned");
  add_own_gpu_choice(*run, options.gpus);
  add_knob(*run, options, job);
  add_metric(*run, options);
  add_config(*run, options.policy.config);
  add_command(*run, options);
  // A job's GPUs are the daemon's: what only this process could do would do nothing.
  for (const char* ours : {"--sim", "--records", "--config"}) run->get_option(ours)->excludes(job);
  run->footer(
      examples({"derate tune run --job bert -- python3 train.py --batch-size {batch_size}",
                "derate tune run --job bert --metric-pattern 'val_acc=([0-9.]+)' -- ./train",
                "derate tune run --selector max-slowdown:1.05 -i 0 -- ./solver",
                "derate tune run --sim V100-SXM2 --app GeMM -- sleep 60"}) +
      "{batch_size} in the command is replaced. A job is the daemon's: it needs no rights of its\n"
      "own. Without one, and where no daemon runs, this process tunes the GPUs itself. A command\n"
      "that says nothing of how far it is (to the daemon by lines, else by derate beat) runs at\n"
      "the highest setting.\n"
      "The command's exit code is kept, 0 where it was stopped because the target is reached;\n"
      "Derate's own failures are 125, 126, 127 as for env(1).\n");
}

void add_tune_replay(CommandLine& line, CLI::App& tune) {
  std::string policies, workloads;
  for (const ReplayPolicy& policy : replay_policies())
    policies += fmt::format("{}{}", policies.empty() ? "" : ", ", policy.name);
  for (const TraceTask& task : trace_tasks())
    workloads += fmt::format("{}{}", workloads.empty() ? "" : ", ", task.name);
  CLI::App* verb = tune.add_subcommand(
      "replay", "Replay jobs that recur from measured traces, policy by policy");
  auto& options = line.add_options<TuneReplayOptions>(*verb);
  verb->add_option("--train", options.train, "Epochs to target by batch size: summary_train.csv")
      ->type_name("FILE")
      ->required();
  verb->add_option("--power", options.power,
                   "Epoch time and power by limit: summary_power_GPU.csv; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->required();
  verb->add_option("--workload", options.workloads,
                   fmt::format("Only these, of {}; default: all", workloads))
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--policy", options.policies,
                   fmt::format("Only these, of {}; default: all", policies))
      ->delimiter(',')
      ->allow_extra_args(false);
  verb->add_option("--targets", options.targets,
                   "The reported targets, or those that our own constants were chosen on")
      ->check(one_of({"reported", "tuning"}))
      ->type_name("reported|tuning");
  verb->add_option("--seeds", options.seeds, "So many seeds")->check(CLI::Range(1, 100000));
  verb->add_option("--first-seed", options.first_seed, "The first of them")
      ->check(CLI::Range(1, 1000000));
  verb->add_option("--eta", options.eta, "Weight of energy against time in the cost")
      ->check(in_range(0, 1));
  verb->add_option("--beta", options.beta, "A run is stopped at so many times the best one's cost")
      ->check(in_range(1, 100));
  verb->add_option("--recurrences", options.recurrences,
                   "Runs of each job; default: 2 * batch sizes * limits, as published")
      ->check(CLI::Range(1, 100000));
  verb->add_option("--noise", options.noise,
                   "What profiles read of an epoch's time and power varies by this share")
      ->check(in_range(0, 1));
  verb->add_option("--change", options.change,
                   "Half way: nothing, another target, or the best batch size moves three places")
      ->check(one_of({"nothing", "target", "sizes"}))
      ->type_name("nothing|target|sizes");
  verb->add_option("--budget", options.budget,
                   "What tune may cost above the default in sum after 5 runs; default: no limit")
      ->check(in_range(0, 10));
  verb->add_option("--selector", options.selector,
                   "For one run: energy, time, cost:ETA, max-slowdown:FACTOR");
  verb->add_flag("--brief", options.brief, "Print what it comes to over all jobs, not each");
  add_json(*verb, options);
  verb->footer(
      examples({"derate tune replay --train summary_train.csv --power "
                "summary_power_v100.csv",
                "derate tune replay --train summary_train.csv --power "
                "summary_power_v100.csv --policy tune,zeus --seeds 1000 --json"}));
}

void add_tune_verbs(CommandLine& line) {
  CLI::App* tune = line.app.add_subcommand(
      "tune", "Training jobs that recur: their batch size, and the limit within a run");
  tune->require_subcommand(1);
  add_tune_job_verbs(line, *tune);
  add_tune_run(line, *tune);
  add_tune_replay(line, *tune);
  tune->footer(examples({"derate tune job list", "derate tune run --job bert -- ./train"}));
}

void add_report(CommandLine& line) {
  CLI::App* report =
      line.app.add_subcommand("report", "Make a page of an experiment's results, in one file");
  auto& options = line.add_options<ReportOptions>(*report);
  report->add_option("results", options.results, "What `derate lab run` wrote")
      ->required()
      ->type_name("FILE");
  report
      ->add_option("-o,--output", options.output,
                   "The page; default: beside the results, with .html for its ending")
      ->type_name("FILE");
  CLI::Option* beside =
      report->add_option("--beside", options.beside, "Other results, side by side on the same page")
          ->type_name("FILE");
  add_data(*report, options.data);
  report
      ->add_option("--job", options.job,
                   "Print one job's ticks instead; the page and `lab show --apps` have numbers")
      ->type_name("ID")
      ->excludes("--output")
      ->excludes(beside);
  add_json(*report, options);
  report->get_option("--json")->excludes(beside);
  report->footer(examples({"derate report mine.lab", "derate report mine.lab --beside theirs.lab",
                           "derate report mine.lab --job 17 --json"}));
}

void add_doctor(CommandLine& line) {
  CLI::App* doctor = line.app.add_subcommand(
      "doctor", "Say what this machine allows, and what to do where it does not");
  auto& options = line.add_options<DoctorOptions>(*doctor);
  doctor->add_flag("-v,--verbose", options.verbose, "Print all findings of each GPU");
  add_json(*doctor, options);
  doctor->footer(examples({"derate doctor", "derate doctor -v", "derate doctor --json"}) +
                 "Exit code 0: all is well; 1: it works, with limits; 2: it cannot work here.\n");
}

void add_config_of_daemon(CommandLine& line, CLI::App& config) {
  CLI::App* set = config.add_subcommand("set", operation<ConfigSet>().what);
  auto& set_options = line.add_options<ConfigSetOptions>(*set);
  set->add_option("settings", set_options.set,
                  "Settings, and parameters of policies: SECTION.KEY=VALUE, "
                  "policy.NAME.PARAMETER=VALUE")
      ->type_name("KEY=VALUE");
  set->add_option("--unset", set_options.unset, "Take back what was set, each")->type_name("KEY");
  set->add_flag("--dry-run", set_options.dry_run, "Check it and show what would change");
  add_json(*set, set_options);
  set->footer(examples({"derate config set safety.idle_after_s=2 --dry-run",
                        "derate config set governor.policy=assure policy.assure.delta=0.05",
                        "derate config set --unset policy.assure.delta"}));
  CLI::App* diff = config.add_subcommand("diff", operation<ConfigDiff>().what);
  add_json(*diff, line.add_options<ConfigDiffOptions>(*diff));
  diff->footer(examples({"derate config diff && systemctl reload derated"}));
}

void add_config_verbs(CommandLine& line) {
  CLI::App* config = line.app.add_subcommand("config", "Check, print or set the configuration");
  config->require_subcommand(1);
  CLI::App* check = config->add_subcommand("check", "Check a configuration file");
  auto& check_options = line.add_options<ConfigCheckOptions>(*check);
  CLI::App* print = config->add_subcommand("print", "Print the settings in force, with comments");
  auto& print_options = line.add_options<ConfigPrintOptions>(*print);
  for (auto [one, common] :
       {std::pair<CLI::App*, ConfigOptions*>{check, &check_options}, {print, &print_options}}) {
    one->add_option("file", common->file,
                    "The file; default: $DERATE_CONFIG, else /etc/derate/derate.toml")
        ->type_name("FILE");
    add_json(*one, *common);
  }
  check->footer(examples({"derate config check derate.toml"}));
  print->footer(examples({"derate config print > derate.toml"}));
  config->footer(examples({"derate config check derate.toml", "derate config print",
                           "derate config set safety.idle_after_s=2", "derate config diff"}));
  add_config_of_daemon(line, *config);
}

void add_token_verbs(CommandLine& line) {
  CLI::App* token =
      line.app.add_subcommand("token", "Create, list and revoke tokens for the API (derate-agent)");
  token->require_subcommand(1);
  CLI::App* create = token->add_subcommand("create", operation<TokenCreate>().what);
  auto& create_options = line.add_options<TokenCreateOptions>(*create);
  create->add_option("name", create_options.name, "What to call it")->type_name("NAME")->required();
  create->add_option("--role", create_options.role, "What it allows")
      ->type_name("reader|user|operator")
      ->check(one_of({"reader", "user", "operator"}))
      ->capture_default_str();
  create->add_option("--days", create_options.days, "When it expires")
      ->type_name("DAYS")
      ->check(CLI::Range(0.001, 3650.0))
      ->capture_default_str();
  add_json(*create, create_options);
  create->footer(examples({"derate token create grafana",
                           "derate token create scheduler --role operator --days 90 > secret"}) +
                 "The token alone goes to standard output; it is not shown again.\n");
  CLI::App* list = token->add_subcommand("list", operation<TokenList>().what);
  add_json(*list, line.add_options<TokenListOptions>(*list));
  list->footer(examples({"derate token list"}));
  CLI::App* revoke = token->add_subcommand("revoke", operation<TokenRevoke>().what);
  auto& revoke_options = line.add_options<TokenRevokeOptions>(*revoke);
  revoke->add_option("name", revoke_options.name, "Which")->type_name("NAME")->required();
  add_json(*revoke, revoke_options);
  revoke->footer(examples({"derate token revoke grafana"}));
  token->footer(examples({"derate token create grafana", "derate token list"}));
}

void add_others(CommandLine& line) {
  CLI::App* completion = line.app.add_subcommand("completion", "Print a completion script");
  completion
      ->add_option("shell", line.add_options<CompletionOptions>(*completion).shell, "The shell")
      ->type_name("bash|zsh|fish")
      ->required();
  completion->footer(examples({"derate completion bash > /etc/bash_completion.d/derate"}));
  CLI::App* manual = line.app.add_subcommand("manual", "Print a manual page (roff)");
  auto& manual_options = line.add_options<ManualOptions>(*manual);
  manual->add_option("verb", manual_options.verb, "Of this verb alone; default: of all");
  manual->add_flag("--list", manual_options.list, "List the verbs that have a page of their own")
      ->excludes("verb");
  manual->footer(examples({"derate manual | man -l -", "derate manual run | man -l -"}));
  CLI::App* codes = line.app.add_subcommand("exit-codes", "List what the exit codes mean");
  add_json(*codes, line.add_options<ExitCodesOptions>(*codes));
  codes->footer(examples({"derate exit-codes"}) + "\n" + exit_code_text());
}

// Of all verbs and options, but for the arguments of the command that `run` starts.
void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options())
    if (option->get_expected_max() > 0 && option->get_name() != "command")
      option->check(not_empty());
  for (CLI::App* verb : app.get_subcommands({})) refuse_empty_values(*verb);
}

// The verbs as `derate --help` groups them, in its order.
struct VerbGroup {
  const char* name;
  std::initializer_list<const char*> verbs;
};
const VerbGroup kVerbGroups[] = {
    {"Start here", {"doctor", "demo"}},
    {"Run and tune", {"run", "energy", "tune", "beat"}},
    {"Watch", {"status", "top", "why", "events", "attribute"}},
    {"Look back", {"history", "savings", "bill"}},
    {"The daemon", {"policy", "release", "pause", "resume", "restore", "config", "token"}},
    {"Lab and simulation", {"lab", "report", "sim", "record", "replay"}},
    {"Tools", {"completion", "manual", "exit-codes"}},
};

std::unique_ptr<CommandLine> make_command_line() {
  auto line = std::make_unique<CommandLine>();
  line->app.set_version_flag("--version", std::string("derate ") + kVersion);
  line->app.require_subcommand(1);
  line->app.footer(
      "`derate VERB --help`, or `derate help VERB`, has each verb's options and examples;\n"
      "`derate exit-codes` lists what the exit codes mean.");
  line->app.get_formatter()->column_width(34);
  add_doctor(*line);
  add_demo(*line);
  add_run(*line);
  add_status(*line);
  add_energy(*line);
  add_attribute(*line);
  add_bill(*line);
  add_history(*line);
  add_savings(*line);
  add_why(*line);
  add_advise(*line);
  add_ui(*line);
  add_events(*line);
  add_beat(*line);
  add_tune_verbs(*line);
  add_policy_verbs(*line);
  add_safety_verbs(*line);
  add_record(*line);
  add_replay(*line);
  add_sim_verbs(*line);
  add_lab_verbs(*line);
  add_report(*line);
  add_config_verbs(*line);
  add_token_verbs(*line);
  add_others(*line);
  refuse_empty_values(line->app);
  for (const VerbGroup& group : kVerbGroups)
    for (const char* verb : group.verbs) line->app.get_subcommand(verb)->group(group.name);
  return line;
}

// What would have been a command's exit code is one as of env(1).
bool starts_command(int argc, const char* const* argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  const bool after_dashes = std::any_of(
      argv, argv + argc, [](const char* word) { return std::string_view(word) == "--"; });
  const std::string_view second = argc > 2 ? argv[2] : "";
  return verb == "run" || (verb == "tune" && second == "run") || (verb == "energy" && after_dashes);
}

// `derate help policy set` is `derate policy set --help`.
std::variant<Verb, Exit> help_of(int argc, const char* const* argv) {
  std::vector<const char*> words = {argv[0]};
  words.insert(words.end(), argv + 2, argv + argc);
  NamedVerb named;
  const auto wrong = wrong_word(make_command_line()->app, words, named);
  const auto known = named.path.empty() ? 0 : split(named.path, ' ').size();
  if (wrong && known + 1 < words.size()) {
    warn("derate: {}\n", *wrong);
    return Exit{exit_code::kUsage};
  }
  words.push_back("--help");
  return parse_command_line(static_cast<int>(words.size()), words.data());
}

}  // namespace

std::variant<Verb, Exit> parse_command_line(int argc, const char* const* argv) {
  const auto line = make_command_line();
  if (argc < 2) {
    write_text(stdout, line->app.help());
    return Exit{exit_code::kUsage};
  }
  if (std::string_view(argv[1]) == "help") return help_of(argc, argv);
  try {
    line->app.parse(argc, const_cast<char**>(argv));
  } catch (const CLI::Success& help) {
    std::ostringstream text, ignored;
    line->app.exit(help, text, ignored);
    write_text(stdout, text.str());
    return Exit{exit_code::kOk};
  } catch (const CLI::ParseError& error) {
    NamedVerb named;
    const auto wrong = wrong_word(line->app, {argv, static_cast<std::size_t>(argc)}, named);
    warn("derate: {}\nUsage: {}\n`derate {}--help` has the options and examples.\n",
         wrong.value_or(error.what()), usage_line(*named.verb, named.path),
         named.path.empty() ? "" : named.path + " ");
    return Exit{starts_command(argc, argv) ? exit_code::kRunFailed : exit_code::kUsage};
  }
  return *line->chosen;
}

Result<std::string> completion_script(const std::string& shell) {
  const auto line = make_command_line();
  if (shell == "bash") return bash_completion(line->app);
  if (shell == "zsh") return zsh_completion(line->app);
  if (shell == "fish") return fish_completion(line->app);
  return Error{Errc::invalid_argument,
               fmt::format("shell '{}': allowed are bash, zsh, fish", shell)};
}

std::vector<VerbWords> all_verbs() {
  const auto line = make_command_line();
  std::vector<VerbWords> out;
  const auto add = [&](const std::string& path, const CLI::App& verb) {
    VerbWords words{path, {}, option_names(verb)};
    for (const CLI::App* child : verb.get_subcommands({})) words.verbs.push_back(child->get_name());
    out.push_back(std::move(words));
  };
  add("", line->app);
  for_each_verb(line->app, "", add);
  return out;
}

std::string manual_page() {
  const auto line = make_command_line();
  std::string out = fmt::format(".TH DERATE 1 \"\" \"derate {}\"\n.SH NAME\nderate \\- {}\n",
                                kVersion, roff(kSummary));
  out += ".SH SYNOPSIS\n.B derate\n.I VERB\n[\\fIOPTION\\fR]...\n.SH VERBS\n";
  for_each_verb(line->app, "", [&](const std::string& path, const CLI::App& verb) {
    out += verb_section(verb, path);
  });
  out += ".SH EXIT STATUS\n";
  for (const ExitCodeInfo& info : exit_codes())
    out += fmt::format(".TP\n.B {} {}\n{}\n", info.code, roff(std::string(info.name)),
                       roff(std::string(info.meaning)));
  out +=
      ".SH FILES\n.TP\n.I /etc/derate/derate.toml\nThe configuration; derate config print shows "
      "all keys.\n";
  out +=
      ".SH ENVIRONMENT\n.TP\n.B DERATE_CONFIG\nThe configuration file.\n.TP\n.B "
      "DERATE_NVML_LIBRARY\nThe NVML "
      "library to load.\n.TP\n.B DERATE_RUN_DIR\nWhere running governors publish their "
      "state.\n.TP\n.B DERATE_BEAT_SOCKET\nWhere derate beat is heard first.\n.TP\n.B "
      "DERATE_LAUNCHES_SOCKET\nWhere a program's launches are counted; derate run sets "
      "it.\n.TP\n.B "
      "DERATE_PROGRESS\noff: launches are not counted.\n.TP\n.B "
      "DERATE_CLIENT_SOCKET\nWhere programs ask for windows of energy first.\n.TP\n.B "
      "DERATE_API_SOCKET\nWhere the daemon's API is asked first.\n.TP\n.B "
      "DERATE_DELTA\nWhat a process may lose: a number in [0, 0.5] or a class of work.\n.TP\n.B "
      "DERATE_STATE_DIR\nWhere journals, the audit log and models of work are kept.\n.TP\n.B "
      "NO_COLOR\nNo "
      "colours on a terminal.\n";
  return out;
}

Result<std::string> manual_page_of(const std::string& verb) {
  return verb_page(make_command_line()->app, verb, kVersion);
}

std::string verbs_with_pages() { return verb_names(make_command_line()->app); }

}  // namespace derate::cli
