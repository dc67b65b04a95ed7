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
#include "base/number.h"
#include "base/suggest.h"
#include "base/text.h"
#include "command_words.h"
#include "completion.h"
#include "help_format.h"
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

// A verb, and the options that it fills.
template <class Options>
struct NewVerb {
  CLI::App& verb;
  Options& options;
};

// The command line and the options it fills. `chosen` is set by the verb that was named.
struct CommandLine {
  CLI::App app{std::string(kSummary) + "\n\n" + kStartHere, "derate"};
  std::optional<Verb> chosen;
  // Options live as long as the app that writes into them.
  std::vector<std::shared_ptr<void>> options;

  template <class Options>
  NewVerb<Options> add_verb(CLI::App& parent, const std::string& name, const std::string& what) {
    CLI::App& verb = *parent.add_subcommand(name, what);
    auto made = std::make_shared<Options>();
    options.push_back(made);
    // A verb that has verbs of its own stands back for the one that was named.
    verb.callback([this, made, &verb] {
      if (verb.get_subcommands().empty()) chosen = *made;
    });
    return {verb, *made};
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
        return good ? std::string()
                    : fmt::format("'{}': allowed is {}{}", text, what,
                                  number_hint(text, lowest, highest));
      },
      "");
}

// Of whole numbers, with the same words.
CLI::Validator whole_in(std::int64_t lowest, std::int64_t highest) {
  return CLI::Validator(
      [=](std::string& text) {
        const auto value = parse_number<std::int64_t>(text);
        const bool good = value && *value >= lowest && *value <= highest;
        return good ? std::string()
                    : fmt::format("'{}': allowed is a whole number in [{}, {}]", text, lowest,
                                  highest);
      },
      "");
}

// An option with a value, which the help names by its type: "FILE".
template <class Value>
CLI::Option* add_value(CLI::App& verb, const std::string& names, const std::string& type,
                       Value& value, const std::string& what) {
  return verb.add_option(names, value, what)->type_name(type);
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
      return fmt::format("'{}': allowed is a time such as 10s, 500ms or 2m, in [{:g}, {:g}] s",
                         text, range.lowest_s, range.highest_s);
    text = fmt::format("{}", *value);
    return std::string();
  };
  const std::string otherwise =
      range.otherwise == nullptr ? "" : fmt::format("; default: {}", range.otherwise);
  return add_value(verb, names, "TIME", seconds,
                   fmt::format("{}: {}{}", what, kTimeForms, otherwise))
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

// How nearly every verb ends: with --json, and below its options examples and what else there is to
// say.
void end_verb(CLI::App& verb, Common& common, std::initializer_list<const char*> lines,
              const std::string& more = "") {
  add_json(verb, common);
  verb.footer(examples(lines) + more);
}

// A verb without other options.
template <class Options>
void add_plain_verb(CommandLine& line, CLI::App& parent, const std::string& name,
                    const std::string& what, std::initializer_list<const char*> lines) {
  auto [verb, options] = line.add_verb<Options>(parent, name, what);
  end_verb(verb, options, lines);
}

// Of a verb that starts a command, which has standard output for itself.
void add_json_account(CLI::App& verb, Common& common) {
  verb.add_flag("--json", common.json,
                "The account as JSON: to -o FILE, else, beside a command, to standard error");
}

void add_config(CLI::App& verb, std::string& file) {
  add_value(verb, "-c,--config", "FILE", file,
            "Configuration file; default: $DERATE_CONFIG, else /etc/derate/derate.toml");
}

void add_parameters(CLI::App& verb, std::vector<std::string>& assignments) {
  add_value(verb, "--set", "NAME=VALUE", assignments,
            "Policy parameter NAME=VALUE; may be repeated")
      ->allow_extra_args(false);
  verb.add_option_function<std::string>(
          "--delta",
          [&assignments](const std::string& value) { assignments.push_back("delta=" + value); },
          "Performance that may be lost, in (0, 0.5]: short for --set delta=...")
      ->type_name("FRACTION");
}

void add_policy(CLI::App& verb, PolicyOptions& options) {
  std::string known;
  for (const PolicyInfo& info : policies())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", info.name);
  known += "; or mode:";
  for (const Mode& mode : modes()) known += fmt::format(" {}", mode.name);
  add_value(verb, "-p,--policy", "POLICY", options.policy,
            fmt::format("Policy: {}; default: the configuration's", known));
  add_parameters(verb, options.assignments);
  add_config(verb, options.config);
}

constexpr const char* kGpus = "GPUs by index (0-3,5), UUID or PCI bus id, comma-separated";

// `otherwise`: what holds without it; null: it has to be said.
CLI::Option* add_gpu_choice(CLI::App& verb, std::string& gpus, const char* otherwise = "all") {
  return add_value(verb, "-i,--gpu", "GPUS", gpus,
                   otherwise == nullptr ? kGpus : fmt::format("{}; default: {}", kGpus, otherwise))
      ->join(',');
}

// Of a verb that is of one GPU; more are refused by name where they are looked up.
void add_one_gpu(CLI::App& verb, std::string& gpu, const char* otherwise) {
  add_value(verb, "-i,--gpu", "GPU", gpu,
            fmt::format("GPU by index, UUID or PCI bus id; default: {}", otherwise))
      ->join(',');
}

// Of a command that is started here: its own, where the environment says which these are.
void add_own_gpu_choice(CLI::App& verb, GpuChoice& gpus) {
  CLI::Option* all = verb.add_flag("--all", gpus.all, "All GPUs of the machine");
  add_gpu_choice(verb, gpus.named,
                 "those of CUDA_VISIBLE_DEVICES, else of SLURM_STEP_GPUS, else of SLURM_JOB_GPUS")
      ->excludes(all);
}

void add_sim(CLI::App& verb, SimCliOptions& options) {
  CLI::Option* sim =
      add_value(verb, "--sim", "CHIP", options.chip,
                "Use simulated GPUs of this chip: its name (derate sim list), or a path "
                "to its file (docs/chips.md)");
  add_value(verb, "--app", "WORKLOAD", options.workload,
            "What the simulated GPU works on; default: the chip's first")
      ->needs(sim);
  add_value(verb, "--tables", "DIR", options.data,
            "Take the workload from performance.csv and power.csv in this folder")
      ->needs(sim);
  verb.add_option("--sim-gpus,--gpus", options.gpus, "How many simulated GPUs")
      ->check(whole_in(1, 64))
      ->needs(sim);
  verb.add_option("--seed", options.seed, "Seed of the simulation")
      ->check(whole_in(0, 1 << 30))
      ->needs(sim);
}

void add_demo_serve(CommandLine& line, CLI::App& demo) {
  auto [verb, options] = line.add_verb<DemoServeOptions>(
      demo, "serve", "Compare policies on a simulated engine that serves a language model");
  add_value(verb, "--data", "DIR", options.data,
            "Folder with serving/azure_conversation_30min.csv; without: arrivals are drawn")
      ->envname("DERATE_DATA");
  add_value(verb, "--chip", "CHIP", options.chip, "The chip: V100-SXM2 or H100-SXM5");
  add_value(verb, "--engine", "NAME", options.engine,
            "The engine: mistral-7b, or llama-8b on H100");
  verb.add_option("--load", options.loads, "Loads, as shares of what the top clock serves")
      ->delimiter(',')
      ->check(in_range(0.01, 1));
  verb.add_option("--seeds", options.seeds, "Hours at each load, each with other arrivals")
      ->check(whole_in(1, 1000));
  verb.add_option("--seed", options.seed, "Seed of the first hour")->check(whole_in(1, 1 << 30));
  verb.add_option("--running", options.most_running, "Requests that run at a time, at most")
      ->check(whole_in(1, 1024));
  verb.add_option("--step-tokens", options.step_tokens,
                  "Tokens of a step, at most; default: the engine's own")
      ->check(whole_in(16, 1 << 20));
  add_time(verb, "--live", options.live_s,
           "Also run the first load for so long in real time, by real processes: an engine on each "
           "of two simulated GPUs, one at the highest clock, one under slo",
           {0, 600, "not"});
  end_verb(verb, options,
           {"derate demo serve", "derate demo serve --data tables --seeds 100",
            "derate demo serve --step-tokens 512 --load 0.4 --json",
            "derate demo serve --load 0.4 --live 2m"});
}

void add_demo(CommandLine& line) {
  auto [verb, options] = line.add_verb<DemoOptions>(
      line.app, "demo", "Compare policies on simulated GPUs, one table a chip");
  add_value(verb, "--data", "DIR", options.data,
            "Folder with measured tables (v100/performance.csv, ...): adds the comparison on them")
      ->envname("DERATE_DATA");
  verb.add_option("--delta", options.delta, "Performance that may be lost, in (0, 0.5]")
      ->check(in_range(0.001, 0.5));
  verb.add_option("--seeds", options.seeds,
                  "Runs of each job with different noise; default: 1 and, on tables, 10")
      ->check(whole_in(1, 1000));
  add_time(verb, "--job-seconds", options.job_seconds, "Length of a job at the top clock",
           {1, 86400, "2m"});
  verb.add_flag("--apps", options.apps, "Show every application too");
  end_verb(verb, options,
           {"derate demo", "derate demo --apps --delta 0.05", "derate demo --data tables --json",
            "derate demo serve"});
  add_demo_serve(line, verb);
}

// Of every verb that runs a command on governed GPUs.
void add_command(CLI::App& verb, RunOptions& options) {
  verb.add_flag("--as-root", options.as_root,
                "Under sudo, run the command as root, not as the calling user");
  verb.add_flag("--shared", options.shared,
                "Govern GPUs beside other users' processes, too (root)");
  verb.add_flag("--no-launches", options.no_launches,
                "Do not count what the command launches (docs/progress.md)");
  add_value(verb, "--records", "FILE", options.records, "Write every tick as a line of JSON");
  add_value(verb, "-o,--report", "FILE", options.report,
            "Write the account there, not to standard error");
  add_sim(verb, options.sim);
  add_json_account(verb, options);
  verb.add_option("command", options.command, "The command and its arguments, after --")
      ->required();
  verb.positionals_at_end();
  verb.prefix_command(false);
}

constexpr const char* kKeepsExitCode =
    "The command's exit code is kept; Derate's own failures are 125, 126, 127 as for env(1).\n";

// The command is an engine: docs/serving.md.
void add_run_engine(CLI::App& verb, RunEngineOptions& options) {
  CLI::Option* metrics =
      add_value(verb, "--metrics", "URL", options.metrics,
                "The command serves a language model, and this is its page of metrics, such as "
                "http://127.0.0.1:8000/metrics");
  add_value(verb, "--promise", "PROMISE", options.promise,
            "The latency that the GPUs keep, such as 'itl p99 <= 50 ms', by the policy slo")
      ->needs(metrics);
  add_value(verb, "--model", "NAME", options.model, "The model whose metrics count")
      ->needs(metrics);
  add_value(verb, "--most-running", "N", options.most_running,
            "Requests that it runs at a time at most, for an upper bound of late tokens")
      ->check(whole_in(1, 100'000))
      ->needs(metrics);
}

void add_run(CommandLine& line) {
  auto [verb, options] = line.add_verb<RunOptions>(
      line.app, "run", "Govern GPUs while a command runs, then say what it came to");
  add_own_gpu_choice(verb, options.gpus);
  add_policy(verb, options.policy);
  verb.add_flag("-n,--dry-run", options.dry_run, "Decide and record, never write");
  add_run_engine(verb, options.engine);
  add_command(verb, options);
  verb.footer(
      examples({"derate run -- python3 train.py", "derate run --dry-run -- python3 train.py",
                "derate run --delta 0.05 -i 0 --dry-run -- ./solver",
                "derate run --sim V100-SXM2 --app GeMM -- sleep 30",
                "derate run --metrics http://127.0.0.1:8000/metrics \\\n"
                "    --promise 'itl p99 <= 50 ms' -- vllm serve MODEL"}) +
      kKeepsExitCode);
}

void add_energy(CommandLine& line) {
  auto [verb, options] = line.add_verb<EnergyOptions>(
      line.app, "energy", "Measure the energy of GPUs while a command runs; writes to none");
  add_own_gpu_choice(verb, options.gpus);
  add_time(verb, "--interval", options.interval_s, "Time between readings of the power",
           {0.01, 60, "100ms"});
  CLI::Option* time =
      add_time(verb, "--for", options.time_s, "How long", {0.001, 1e9, "until Ctrl-C"});
  verb.add_flag("--as-root", options.as_root,
                "Under sudo, run the command as root, not as the calling user");
  add_value(verb, "--log", "FILE", options.log,
            "Write a line of CSV for each window, and one for all");
  add_value(verb, "-o,--report", "FILE", options.report,
            "Write the account there, not to the terminal");
  add_sim(verb, options.sim);
  add_json_account(verb, options);
  verb.add_option("command", options.command, "The command and its arguments, after --")
      ->excludes(time);
  verb.positionals_at_end();
  verb.prefix_command(false);
  verb.footer(
      examples({"derate energy -- python3 train.py", "derate energy --log epochs.csv -- ./train",
                "derate energy --for 10s -i 0 --json",
                "derate energy --sim H200 --app copy -- sleep 5"}) +
      "The command names windows of its own with clients/python/derate_client.py or\n"
      "src/wire/derate_client.h. Its exit code is kept; Derate's own failures are 125, 126, 127\n"
      "as for env(1). Needs no root.\n");
}

void add_compare(CommandLine& line) {
  auto [verb, options] = line.add_verb<CompareOptions>(
      line.app, "compare",
      "Compare the energy, time and power of two commands, or of two policies");
  add_own_gpu_choice(verb, options.gpus);
  verb.add_option("--precision", options.precision,
                  "Stop when each ratio is known within this share; default: 0.02")
      ->check(CLI::Range(0.001, 0.5));
  verb.add_option("--pairs", options.pairs,
                  "Stop after this many runs of each command; default: 20")
      ->check(CLI::Range(4, 1000));
  verb.add_option("--warm-up", options.warm_up,
                  "Runs of each command before, which do not count; default: 1")
      ->check(CLI::Range(0, 100));
  add_time(verb, "--interval", options.interval_s, "Time between readings of the power",
           {0.01, 60, "100ms"});
  verb.add_flag("--show-output", options.show_output, "Show what the commands print");
  verb.add_flag("--as-root", options.as_root,
                "Under sudo, run the commands as root, not as the calling user");
  CLI::Option* policies =
      add_value(verb, "--policies", "A,B", options.policies,
                "Run one command by `derate run` under each of two policies; none: not governed");
  add_value(verb, "--limits", "A,B", options.limits, "... under each of two power limits, in W")
      ->excludes(policies);
  add_value(verb, "--csv", "FILE", options.csv, "Write a line for each run");
  add_value(verb, "--svg", "FILE", options.svg, "Write a picture of all pairs");
  add_sim(verb, options.sim);
  verb.add_flag("--json", options.json, "The account as JSON, on standard output");
  verb.add_option("command", options.command,
                  "Both commands, after --: A, --vs, B. A command in quotes runs by sh -c")
      ->required();
  verb.positionals_at_end();
  verb.prefix_command(false);
  verb.footer(
      examples({"derate compare -- 'python3 a.py' --vs 'python3 b.py'",
                "derate compare --precision 0.01 --pairs 40 -- ./old --vs ./new",
                "derate compare --policies none,assure -- python3 train.py   # governed or not",
                "derate compare --policies 'assure delta=0.05,assure delta=0.2' -- ./train",
                "derate compare --limits 700,500 -- python3 train.py",
                "derate compare --sim H200 --app copy -- 'sleep 1' --vs 'sleep 1.2'"}) +
      "The commands run in turn (A B, B A, ...). The intervals hold whatever the number of runs "
      "at\n"
      "which it stops. Ctrl-C stops it, too, and gives what is known. Needs no root.\n");
}

void add_attribute(CommandLine& line) {
  auto [verb, options] = line.add_verb<AttributeOptions>(
      line.app, "attribute", "Show whose watts these are: instances, processes, pods, jobs, users");
  add_gpu_choice(verb, options.gpus);
  add_time(verb, "--interval", options.interval_s, "Time between pictures", {0.2, 60, "1s"});
  add_time(verb, "--for", options.time_s, "How long", {0.001, 1e9, "until q"});
  verb.add_flag("--watch", options.watch,
                "Go on also where there is no terminal; with --json a line each");
  add_value(verb, "--method", "METHOD", options.method,
            "How it is split (derate attribute methods); default: the configuration's");
  add_value(verb, "--idle-rule", "unallocated|by_slice|equal", options.idle_rule,
            "Who bears what an idle GPU draws");
  CLI::Option* ticks = add_value(verb, "--ticks", "FILE", options.ticks,
                                 "Write each reading there as a line of JSON");
  add_value(verb, "--replay", "FILE", options.replay,
            "Split what such a file holds, not what is now")
      ->excludes(ticks);
  add_sim(verb, options.sim);
  end_verb(
      verb, options,
      {"derate attribute", "derate attribute --for 30s --json",
       "derate attribute --ticks night.ticks --for 8h",
       "derate attribute --replay night.ticks --method equal"},
      "A running daemon answers; without one, or with --method, --idle-rule or --ticks, the\n"
      "GPUs are read directly. Reads only. 90 % of such values lie within the ± that is shown.\n");
  auto [methods, methods_options] =
      line.add_verb<AttributeMethodsOptions>(verb, "methods", "List the ways to split energy");
  end_verb(methods, methods_options, {"derate attribute methods"});
}

constexpr const char* kWhenForms = "2026-11-01, 2026-11-01T12:00, 14:30, now-7d, today, month, now";

void add_prices(CLI::App& verb, std::optional<double>& price, std::optional<double>& co2) {
  add_value(verb, "--price", "NUMBER", price, "Of a kilowatt-hour; default: the configuration's")
      ->check(in_range(0, 1000));
  add_value(verb, "--co2", "GRAMS", co2,
            "Grams of carbon dioxide of a kilowatt-hour; default: the configuration's")
      ->check(in_range(0, 10000));
}

void add_bill(CommandLine& line) {
  auto [verb, options] = line.add_verb<BillOptions>(
      line.app, "bill", "Show who used how much energy, from what the daemon has kept");
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: month", kWhenForms));
  add_value(verb, "--to", "WHEN", options.to, "The same; default: now");
  add_value(verb, "--by", "user|job|pod|container|instance|process|gpu|day", options.by,
            "What a line of the bill is; default: user");
  add_gpu_choice(verb, options.gpus);
  add_prices(verb, options.price, options.co2);
  add_value(verb, "--file", "FILE", options.file, "What to read; default: what the daemon keeps");
  add_config(verb, options.config);
  CLI::Option* csv = verb.add_flag("--csv", options.csv, "Print CSV");
  add_json(verb, options);
  verb.get_option("--json")->excludes(csv);
  verb.footer(examples({"derate bill --from -7d --by user", "derate bill --by job --price 0.30",
                        "derate bill --from 2026-11-01 --to 2026-12-01 --by pod --csv"}) +
              "Lines and unallocated add up to what the boards used, to the millijoule. What is\n"
              "younger than a minute may be missing.\n");
}

void add_history_file(CLI::App& verb, std::string& file) {
  add_value(verb, "--file", "FILE", file, "Read this history, not the daemon's");
}

void add_csv(CLI::App& verb, bool& csv) {
  verb.add_flag("--csv", csv, "Print CSV")->excludes(verb.get_option("--json"));
}

void add_history(CommandLine& line) {
  auto [verb, options] = line.add_verb<HistoryOptions>(
      line.app, "history",
      "Show what GPUs and their tenants drew, at which clocks, and what was saved");
  add_gpu_choice(verb, options.gpus);
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: now-6h", kWhenForms));
  add_value(verb, "--to", "WHEN", options.to, "The same; default: now");
  add_value(verb, "--what", "power|clock|energy|utilisation|temperature|saving|performance",
            options.what, "What the picture is of; default: power");
  verb.add_flag("--tenants", options.tenants, "Of those who share GPUs, not of GPUs");
  verb.add_option("--points", options.points,
                  "Steps become longer until there are so many at most; default: 1000")
      ->check(whole_in(1, 10000));
  add_history_file(verb, options.file);
  add_json(verb, options);
  add_csv(verb, options.csv);
  verb.footer(
      examples({"derate history", "derate history -i 0 --from now-30d --what clock",
                "derate history --from today --tenants",
                "derate history --from 2026-11-01 --to 2026-11-02 --csv > day.csv"}) +
      "Seconds are kept for a day, minutes for 90 days, hours for five years. Blank is what\n"
      "nobody read. Times are of this machine's zone.\n");
}

void add_savings(CommandLine& line) {
  auto [verb, options] = line.add_verb<SavingsOptions>(
      line.app, "savings", "Show what was used and saved: energy, money and carbon dioxide");
  add_value(verb, "--by", "day|gpu|job|user|policy", options.by, "What a line is of; default: day");
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: month", kWhenForms));
  add_value(verb, "--to", "WHEN", options.to, "The same; default: now");
  add_value(verb, "--prices", "FILE", options.prices,
            "CSV by hour: time, price_per_kwh, co2_g_per_kwh (docs/history.md)");
  add_prices(verb, options.price, options.co2);
  add_history_file(verb, options.file);
  add_config(verb, options.config);
  add_json(verb, options);
  add_csv(verb, options.csv);
  verb.footer(
      examples({"derate savings", "derate savings --by job --from now-7d --price 0.30",
                "derate savings --from 2026-10-01 --to 2026-11-01 --prices october.csv --csv"}) +
      "What was saved is an estimate (docs/saving.md), with its 90 % interval. An hour belongs to\n"
      "the day in which it begins. Hours that the file of prices leaves out are told.\n");
}

void add_why(CommandLine& line) {
  auto [verb, options] = line.add_verb<WhyOptions>(
      line.app, "why", "Tell why a GPU's clock is, or was, what it is, and how it changed before");
  add_one_gpu(verb, options.gpu, "0");
  add_value(verb, "--at", "WHEN", options.at, fmt::format("{}; default: now", kWhenForms));
  verb.add_option("--changes", options.changes, "How many to list; default: 10")
      ->check(whole_in(1, 1000));
  add_history_file(verb, options.file);
  end_verb(verb, options,
           {"derate why -i 0", "derate why -i 0 --at 14:30", "derate why -i 0 --at now-2h --json"},
           "Any second of the last day is known.\n");
}

void add_advise(CommandLine& line) {
  auto [verb, options] = line.add_verb<AdviseOptions>(
      line.app, "advise", "Say what holds a work back, by what evidence, and what to try");
  CLI::Option* traces = add_value(verb, "traces", "FILE", options.traces,
                                  "Traces of `derate record` instead of GPUs, one a GPU");
  add_gpu_choice(verb, options.gpus)->excludes(traces);
  add_time(verb, "--for,--seconds", options.seconds, "How long they are watched", {5, 86400, "1m"});
  add_time(verb, "--interval", options.interval_s, "Time between samples", {0.05, 10, "100ms"});
  add_value(verb, "--label", "TEXT", options.label, "Of a trace only the phases of that label")
      ->needs(traces);
  verb.add_flag("--one-job", options.one_job,
                "The GPUs work on one job: say whether they wait for each other");
  verb.add_flag("--list", options.list, "List what can be advised, and which sensors tell it");
  CLI::Option* history = verb.add_flag("--history", options.history,
                                       "Say what promises have come to, and what others would "
                                       "have, by what is kept of these GPUs")
                             ->excludes(traces);
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: now-7d", kWhenForms))
      ->needs(history);
  add_value(verb, "--to", "WHEN", options.to, "The end; default: now")->needs(history);
  add_history_file(verb, options.file);
  verb.get_option("--file")->needs(history);
  add_sim(verb, options.sim);
  end_verb(verb, options,
           {"derate advise", "derate advise -i 0,1,2,3 --one-job --for 5m",
            "derate advise gpu0.trace", "derate advise --sim H200 --app copy",
            "derate advise --history --from now-30d -i 0", "derate advise --list"},
           "Nothing is set on a GPU. Watch a part of the work that is typical of it.\n");
}

void add_ui(CommandLine& line) {
  auto [verb, options] =
      line.add_verb<UiOptions>(line.app, "ui", "Show the fleet, its GPUs and savings in a browser");
  add_value(verb, "-l,--listen", "ADDRESS:PORT", options.listen,
            "A loopback address and port; default: 127.0.0.1 and any port");
  verb.add_flag("--no-open", options.no_open, "Print the address and open no browser");
  verb.footer(examples({"derate ui", "derate ui --no-open --listen 127.0.0.1:9411",
                        "ssh -L 9411:127.0.0.1:9411 gpu7 derate ui --no-open -l 127.0.0.1:9411"}) +
              "It asks derated as you, and shows what you may see. Ctrl-C ends it.\n");
}

void add_events(CommandLine& line) {
  auto [verb, options] =
      line.add_verb<EventsOptions>(line.app, "events", "List what happened, and to which GPU");
  add_one_gpu(verb, options.gpu, "all, and the service");
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: now-1d", kWhenForms));
  CLI::Option* to = add_value(verb, "--to", "WHEN", options.to, "The same; default: now");
  CLI::Option* follow =
      verb.add_flag("-f,--follow", options.follow, "Go on with what happens, until Ctrl-C")
          ->excludes(to);
  verb.add_flag("--each", options.each,
                "Print each event; default: one line for those of a kind within a minute");
  add_history_file(verb, options.file);
  verb.get_option("--file")->excludes(follow);
  end_verb(verb, options,
           {"derate events", "derate events -i 0 --from today", "derate events --follow",
            "derate events --follow --json"},
           "docs/events.md lists them. --json has each event. With --follow, it prints a line for "
           "each.\n");
}

void add_status(CommandLine& line) {
  auto [verb, options] = line.add_verb<StatusOptions>(
      line.app, "status", "Show each GPU, who governs it, and why its clock is what it is");
  add_gpu_choice(verb, options.gpus);
  end_verb(verb, options, {"derate status", "derate status -i 0 --json"});
}

void add_beat(CommandLine& line) {
  auto [verb, options] = line.add_verb<BeatOptions>(
      line.app, "beat",
      "Tell the daemon how far the work is, in its own steps, tokens or requests");
  CLI::Option* done =
      add_value(verb, "--done", "NUMBER", options.done, "Work done since its beginning")
          ->check(in_range(0, kMostDone));
  verb.add_flag("--stdin", options.from_stdin,
                "Read such numbers, one a line, until the end; other lines are passed on")
      ->excludes(done);
  add_value(verb, "--phase", "NAME", options.phase, "What it is doing, in one word");
  add_value(verb, "--max-loss", "FRACTION", options.max_loss,
            "Performance that it may lose, in [0, 0.5]; at most the daemon's max_delta")
      ->check(in_range(0, 0.5));
  add_value(verb, "-i,--gpu", "GPUS", options.gpu,
            "The GPUs that it works on; default: those of the calling process");
  CLI::Option* announce =
      verb.add_flag("--announce", options.announce,
                    "Only say DERATE_DELTA and SLURM_JOB_ID of this environment, which the daemon "
                    "may not be able to read; nothing happens where neither is set")
          ->excludes("--done", "--stdin", "--phase", "--max-loss", "--gpu");
  add_value(verb, "--pid", "PID", options.pid,
            "With --announce: of that process and those below it in its session; default: the "
            "calling one")
      ->check(whole_in(1, std::numeric_limits<std::int32_t>::max()))
      ->needs(announce);
  verb.footer(examples({"derate beat --done 1200", "train | derate beat --stdin",
                        "derate beat --done 17 --phase prefill --max-loss 0.05 -i 0",
                        "derate beat --announce --pid $SLURM_TASK_PID"}) +
              "Only the owner of a process on the GPU is believed, and root.\n");
}

void add_slurm_report(CommandLine& line, CLI::App& slurm) {
  auto [verb, options] = line.add_verb<SlurmReportOptions>(
      slurm, "report", "Sum up the joules, the savings and the promises of ended jobs");
  add_value(verb, "--account", "NAME", options.account, "Jobs of this account; default: all");
  add_value(verb, "--user", "NAME", options.user, "Jobs of this user; default: all");
  add_value(verb, "--from", "WHEN", options.from, fmt::format("{}; default: month", kWhenForms));
  add_value(verb, "--to", "WHEN", options.to, "The same; default: now");
  add_value(verb, "--by", "account|user|job", options.by, "What a line is; default: account");
  add_value(verb, "--file", "FILE", options.file,
            "Jobs of one machine that this file has; default: those of sacct");
  verb.add_flag("--here", options.here, "Jobs of this machine alone, without sacct");
  add_json(verb, options);
  verb.footer(examples({"derate slurm report --account physics --from -7d",
                        "derate slurm report --by user --from 2026-11-01 --to 2026-12-01"}) +
              "Jobs come from sacct, their joules from AdminComment (`derate slurm epilog\n"
              "--comment`) or from this machine's own file. Savings are estimates.\n");
}

void add_slurm_comment(CommandLine& line, CLI::App& slurm) {
  auto [verb, options] = line.add_verb<SlurmCommentOptions>(
      slurm, "comment", "Write the account of an ended job into its AdminComment (sacctmgr)");
  add_value(verb, "job", "JOB", options.job, "Its number, as SLURM_JOB_ID has it")->required();
  add_value(verb, "--cluster", "NAME", options.cluster, "As slurm.conf names it");
  add_value(verb, "--node", "NAME", options.node, "This node, as slurm.conf names it");
  verb.add_option("--nodes", options.nodes, "How many nodes the job had; default: 1")
      ->check(in_range(1, 1 << 20));
  verb.add_option("--restart", options.restart, "How often the job was requeued; default: 0")
      ->check(in_range(0, 1 << 20));
  verb.add_option("--begun", options.begun,
                  "The run that began then, in seconds since 1970; default: the newest")
      ->check(in_range(0, 1e11));
  add_value(verb, "--shares", "DIR", options.shares,
            "A folder that all nodes have, where they sum up a job of several nodes");
  verb.footer(examples({"derate slurm comment 4711"}) +
              "`derate slurm epilog --comment` runs it after the epilog has ended.\n");
}

void add_slurm_verbs(CommandLine& line) {
  CLI::App& slurm = *line.app.add_subcommand("slurm", "Slurm's hooks, and what its jobs have used");
  slurm.require_subcommand(1);
  constexpr const char* kHook =
      "Slurm runs it as root on the node of the job, with the job in its environment. It exits\n"
      "with 0 whatever happens, after 2 s at most (docs/slurm.md).\n";
  auto [prolog, prolog_options] = line.add_verb<SlurmPrologOptions>(
      slurm, "prolog", "Report the begin of a job and its GPUs to derated");
  prolog.footer(examples({"derate slurm prolog"}) + kHook);
  auto [epilog, epilog_options] =
      line.add_verb<SlurmEpilogOptions>(slurm, "epilog", "Report the end of a job to derated");
  epilog.add_flag("--comment", epilog_options.comment,
                  "Then write the job's account into its AdminComment, in the background");
  add_value(epilog, "--shares", "DIR", epilog_options.shares,
            "A folder that all nodes have, where they sum up a job of several nodes");
  epilog.footer(
      examples({"derate slurm epilog", "derate slurm epilog --comment --shares /srv/derate"}) +
      kHook);
  add_slurm_comment(line, slurm);
  auto [jobs, jobs_options] = line.add_verb<SlurmJobsOptions>(
      slurm, "jobs", "List the jobs that have GPUs here, and the last that had, with their joules");
  add_value(jobs, "job", "JOB", jobs_options.job, "One job, by its number; default: all");
  end_verb(jobs, jobs_options, {"derate slurm jobs", "derate slurm jobs 4711 --json"});
  auto [gpus, gpus_options] = line.add_verb<SlurmGpusOptions>(
      slurm, "gpus",
      "Show which GPU each of Slurm's numbers on this node is, or why none is proven");
  add_value(gpus, "--node", "NAME", gpus_options.node, "This node, as slurm.conf names it")
      ->required();
  end_verb(gpus, gpus_options, {"derate slurm gpus --node n1"});
  add_slurm_report(line, slurm);
}

void add_model_verbs(CommandLine& line, CLI::App& group) {
  constexpr const char* kSimulatedHelp = "Those of simulated GPUs";
  auto [models, options] = line.add_verb<PolicyModelsOptions>(
      group, "models", "List what is kept of work, to know it when it comes again");
  models.add_flag("--simulated", options.simulated, kSimulatedHelp);
  end_verb(models, options, {"derate policy models", "derate policy models --json"},
           "Performance is relative to the reference, +- one standard deviation.\n");
  auto [forget, forget_options] =
      line.add_verb<PolicyForgetOptions>(group, "forget", "Delete models of work");
  forget.add_flag("--simulated", forget_options.simulated, kSimulatedHelp);
  add_json(forget, forget_options);
  CLI::Option* ids =
      forget.add_option("id", forget_options.ids, "Models, as derate policy models numbers them");
  forget.add_flag("--all", forget_options.all, "All of them")->excludes(ids);
  forget.footer(examples({"derate policy forget 7", "derate policy forget --all"}) +
                "A governor that runs keeps what it knows: it ends first.\n");
}

void add_policy_verbs(CommandLine& line) {
  CLI::App& group = *line.app.add_subcommand("policy", "List policies and their parameters");
  group.require_subcommand(1);
  add_plain_verb<PolicyListOptions>(line, group, "list", "List the policies",
                                    {"derate policy list", "derate policy list --json"});
  auto [show, options] =
      line.add_verb<PolicyShowOptions>(group, "show", "Describe a policy and its parameters");
  add_value(show, "name", "POLICY", options.name, "The policy")->required();
  end_verb(show, options, {"derate policy show geepafs"});
  auto [set, set_options] =
      line.add_verb<PolicySetOptions>(group, "set", operation<PolicySet>().what);
  add_value(set, "name", "POLICY", set_options.policy.policy,
            "The policy, or a mode; default: the configuration's, also after a release");
  add_gpu_choice(set, set_options.gpus);
  add_parameters(set, set_options.policy.assignments);
  set.add_flag("-n,--dry-run", set_options.dry_run, "Decide and record, never write");
  add_time(set, "--confirm-within", set_options.confirm_within_s,
           "What governed before comes back after that, unless `derate policy confirm` comes first",
           {1, 3600, "it never does"});
  set.add_flag("--keep", set_options.keep,
               "Write it into the configuration's drop-in, too, so that it outlives a restart")
      ->excludes("--confirm-within");
  end_verb(
      set, set_options,
      {"derate policy set geepafs -i 0 --delta 0.05", "derate policy set assure -i 0-3,5 --keep",
       "derate policy set assure --delta 0.2 --confirm-within 5m", "derate policy set -i 0"},
      "It holds until the daemon ends or `derate release`. With --keep it outlives that:\n"
      "the answer says how it is undone. Without a policy the GPUs are the\n"
      "configuration's again.\n");
  auto [confirm, confirm_options] =
      line.add_verb<PolicyConfirmOptions>(group, "confirm", operation<PolicyConfirm>().what);
  add_gpu_choice(confirm, confirm_options.gpus);
  confirm.add_flag("--revert", confirm_options.revert,
                   "It is not kept: what governed before comes back now");
  end_verb(confirm, confirm_options, {"derate policy confirm -i 0", "derate policy confirm"});
  auto [forecast, forecast_options] =
      line.add_verb<PolicyForecastOptions>(group, "forecast", operation<ForecastRead>().what);
  add_gpu_choice(forecast, forecast_options.gpus);
  end_verb(forecast, forecast_options,
           {"derate policy forecast -i 0", "derate policy forecast --json"},
           "Of the minutes after it would be promised, each with the ends that it is 90 % sure "
           "between.\n");
  add_model_verbs(line, group);
  group.footer(examples({"derate policy list", "derate policy show geepafs"}));
}

// "batch_sizes" is --batch-sizes, the name stands by itself.
std::string option_of(const JobField& field) {
  std::string out = field.key;
  if (out == "name") return out;
  std::replace(out.begin(), out.end(), '_', '-');
  return "--" + out;
}

void add_job_create(CommandLine& line, CLI::App& job) {
  // No bindings: clang 14 lets no lambda capture one.
  const auto added =
      line.add_verb<TuneJobCreateOptions>(job, "create", operation<JobCreate>().what);
  CLI::App& create = added.verb;
  TuneJobCreateOptions& options = added.options;
  visit_job_spec(options.spec, [&]<class T>(const JobField& field, T& value) {
    CLI::Option* option = nullptr;
    if constexpr (std::is_same_v<T, bool>) {
      option = create.add_flag(option_of(field), value, field.summary);
    } else {
      option = add_value(create, option_of(field), field.type, value, field.summary);
      if constexpr (std::is_same_v<T, std::vector<int>>)
        option->delimiter(',')->allow_extra_args(false);
    }
    if (field.required) option->required();
  });
  create.add_flag("--replace", options.replace,
                  "Where another job has that name, forget it and its history");
  end_verb(create, options,
           {"derate tune job create bert --batch-sizes 8,16,32 --default 32 --target 0.84 "
            "--max-epochs 20",
            "derate tune job create lm --batch-sizes 16,32,64 --default 32 --target 3.2 "
            "--lower-is-better --max-epochs 40 --eta 1"},
           "The same again changes nothing; another of that name is refused without --replace.\n");
}

void add_tune_job_verbs(CommandLine& line, CLI::App& tune) {
  CLI::App& job = *tune.add_subcommand("job", "Jobs that recur, and their history");
  job.require_subcommand(1);
  add_job_create(line, job);
  add_plain_verb<TuneJobListOptions>(line, job, "list", operation<JobList>().what,
                                     {"derate tune job list", "derate tune job list --json"});
  auto [show, show_options] =
      line.add_verb<TuneJobShowOptions>(job, "show", operation<JobShow>().what);
  show.add_option("name", show_options.name, "The job")->required();
  end_verb(show, show_options, {"derate tune job show bert"});
  auto [remove, remove_options] =
      line.add_verb<TuneJobRemoveOptions>(job, "remove", operation<JobRemove>().what);
  remove.add_option("name", remove_options.name, "The job")->required();
  end_verb(remove, remove_options, {"derate tune job remove bert"});
  job.footer(examples({"derate tune job list", "derate tune job show bert"}));
}

void add_safety_verbs(CommandLine& line) {
  auto [top, top_options] =
      line.add_verb<TopOptions>(line.app, "top", "Show the GPUs live; q or Ctrl-C ends it");
  add_gpu_choice(top, top_options.gpus);
  add_time(top, "--interval", top_options.interval_s, "Time between two pictures", {0.1, 60, "1s"});
  top.add_option("--rounds", top_options.rounds, "Pictures until it ends; default: no end")
      ->check(whole_in(1, 1 << 30));
  end_verb(top, top_options, {"derate top", "derate top --rounds 1"});

  auto [restore, restore_options] = line.add_verb<RestoreOptions>(
      line.app, "restore",
      "Put back what governors that died have left on GPUs, from their journals");
  restore.add_option("-i,--gpu", restore_options.gpus,
                     "One GPU by its UUID or the beginning of it; default: all with a journal");
  add_time(restore, "--wait", restore_options.wait_s,
           "How long to wait for a governor that is just ending", {0, 600, "not at all"});
  restore.add_flag("--reset", restore_options.reset,
                   "Also reset the clock lock of GPUs whose journal cannot be used");
  end_verb(
      restore, restore_options,
      {"derate restore", "derate restore --wait 10", "derate restore --reset",
       "derate restore --json"},
      "A GPU that a living governor holds is left alone (exit code 75). While a journal is left\n"
      "that nobody would restore, or that cannot be used, the exit code is 1. --reset gives such\n"
      "a GPU its own clock control; its power limit is left as it is.\n");

  auto [release, release_options] =
      line.add_verb<ReleaseOptions>(line.app, "release", operation<Release>().what);
  add_gpu_choice(release, release_options.gpus, nullptr);
  release.add_flag("--all", release_options.all, "All GPUs");
  end_verb(release, release_options, {"derate release -i 0", "derate release --all"});

  add_plain_verb<PauseOptions>(line, line.app, "pause", operation<Pause>().what,
                               {"derate pause && nvidia-smi -i 0 -mig 1; derate resume"});
  add_plain_verb<ResumeOptions>(line, line.app, "resume", operation<Resume>().what,
                                {"derate resume"});
}

void add_record(CommandLine& line) {
  auto [verb, options] = line.add_verb<RecordOptions>(line.app, "record", "Write a trace of a GPU");
  add_value(verb, "-o,--output", "FILE", options.output, "The trace to write")->required();
  add_value(verb, "-i,--gpu", "GPUS", options.gpu,
            "The GPU, by index, UUID or PCI bus id; default: 0");
  add_time(verb, "--for,--seconds", options.seconds, "How long",
           {0.1, 1e7, "until Ctrl-C (a simulated GPU needs it)"});
  add_time(verb, "--interval", options.interval_s, "Time between samples", {0.01, 60, "100ms"});
  verb.add_flag("-f,--force", options.force, "Overwrite the file");
  add_sim(verb, options.sim);
  end_verb(
      verb, options,
      {"derate record -o gpu0.trace --for 1m", "derate record -o sim.trace --sim H200 --for 1m"});
}

void add_replay(CommandLine& line) {
  auto [verb, options] = line.add_verb<ReplayOptions>(
      line.app, "replay", "Drive the loop from a recorded trace, as a dry run");
  add_value(verb, "trace", "FILE", options.trace,
            "A trace of `derate record`, or CSV (docs/trace-format.md)")
      ->required();
  add_policy(verb, options.policy);
  add_value(verb, "--chip", "CHIP", options.chip,
            "The chip of a CSV trace; default: told from its memory clock");
  add_value(verb, "--records", "FILE", options.records, "Write every tick as a line of JSON");
  end_verb(verb, options,
           {"derate replay gpu0.trace", "derate replay --policy utiliz-scale --json gpu0.trace"});
}

void add_sim_directory(CLI::App& verb, SimDirectory& options) {
  add_value(
      verb, "--dir", "DIR", options.directory,
      "Where the simulated GPUs are served; default: $DERATE_SIM, else sim in the run directory");
}

void add_sim_serve(CommandLine& line, CLI::App& sim) {
  auto [verb, options] = line.add_verb<SimServeOptions>(
      sim, "serve", "Serve simulated GPUs to any NVML client, in real time, until Ctrl-C");
  add_value(verb, "--chip", "CHIP", options.chips,
            "Chips by name (derate sim list) or by a path to their file, comma-separated or "
            "repeated; default: V100-SXM2")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--gpus", options.gpus,
                  "How many GPUs, of the chips in turn; default: one of each chip")
      ->check(whole_in(1, 64));
  verb.add_option("--seed", options.seed, "Seed of the simulation")->check(whole_in(0, 1 << 30));
  verb.add_option("--mig", options.mig,
                  "MIG mode on every GPU, with instances of these profiles: 3g,2g,1g,1g; none: "
                  "with no instance");
  add_value(verb, "--minors", "NUMBERS", options.minors,
            "N of each GPU's /dev/nvidiaN, comma-separated; default: its index")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--speed", options.speed, "Simulated seconds a second, for long tests")
      ->check(in_range(0.01, 10'000));
  add_sim_directory(verb, options);
  end_verb(verb, options,
           {"derate sim serve --chip H200 --gpus 8",
            "derate sim serve --chip V100-SXM2,H200 --dir /tmp/gpus"});
}

// The options of `derate sim job llm`.
void add_engine(CLI::App& verb, SimEngineOptions& options) {
  add_value(verb, "--metrics", "ADDRESS:PORT", options.metrics,
            "llm: where its page of metrics is, a loopback address; default: " + options.metrics);
  add_value(verb, "--engine", "NAME", options.name,
            "llm: the engine; default: the chip's first (docs/serving-engines.md)");
  add_value(verb, "--requests", "RATE", options.requests,
            "llm: requests a second, on average; they come for four hours; default: 1")
      ->check(in_range(0.001, 1000));
  add_value(verb, "--burst", "AT,LENGTH,TIMES", options.burst,
            "llm: so many times the requests, from then on, for so long, as 60s,20s,3");
  add_value(verb, "--trace", "FILE", options.trace,
            "llm: sizes of requests, CSV (arrival_s, prompt_tokens, generated_tokens); default: "
            "assumed ones");
  add_value(verb, "--running", "N", options.running,
            "llm: requests that run at a time at most; default: vLLM's 256")
      ->check(whole_in(1, 4096));
  add_value(verb, "--step-tokens", "N", options.step_tokens,
            "llm: tokens of a step at most; default: the engine's own")
      ->check(whole_in(1, 1 << 20));
  add_value(verb, "--seed", "N", options.seed, "llm: of when requests come; default: 1")
      ->check(whole_in(0, 1 << 30));
  add_time(verb, "--for", options.for_s, "llm: how long", {0, 4 * 3600, "until Ctrl-C"});
}

void add_sim_job(CommandLine& line, CLI::App& sim) {
  auto [verb, options] = line.add_verb<SimJobOptions>(
      sim, "job", "Occupy a served GPU with work, then say what it came to");
  add_value(
      verb, "workload", "WORKLOAD", options.workload,
      "What to run (derate sim list); default: the chip's first; llm: an engine that serves a "
      "language model, with vLLM's metrics");
  add_time(verb, "--work", options.work_s, "How much, as time at the highest clock",
           {0, 1e9, "until Ctrl-C"});
  add_value(verb, "-i,--gpu", "GPUS", options.gpu,
            "The GPU, by index, UUID or PCI bus id; default: 0");
  add_value(verb, "--instance", "ID", options.instance, "With MIG: the instance, by its id")
      ->check(in_range(1, 1000));
  add_value(verb, "--tables", "DIR", options.tables,
            "Take the workload from performance.csv and power.csv in this folder");
  verb.add_flag("--beat", options.beat, "Say each second how far it is, as applications can");
  add_value(verb, "--launches", "FILE", options.launches,
            "Launch kernels as in this recording, for who counts them (docs/progress.md)");
  add_engine(verb, options.engine);
  add_sim_directory(verb, options);
  end_verb(verb, options,
           {"derate sim job GeMM --work 120s", "derate sim job -i 1 --work 2m --json",
            "derate sim job llm --requests 2 --burst 60s,20s,3"});
}

void add_sim_show(CommandLine& line, CLI::App& sim) {
  auto [verb, options] = line.add_verb<SimShowOptions>(
      sim, "show", "Show the settings, faults and truth of served GPUs, which no driver tells");
  add_gpu_choice(verb, options.gpus);
  add_sim_directory(verb, options);
  end_verb(verb, options, {"derate sim show", "derate sim show -i 0 --json"});
}

void add_sim_fault(CommandLine& line, CLI::App& sim) {
  auto [verb, options] =
      line.add_verb<SimFaultOptions>(sim, "fault", "Let something go wrong with served GPUs");
  add_gpu_choice(verb, options.gpus);
  CLI::Option* call =
      add_value(verb, "--call", "NAME", options.call,
                "An NVML function, or the beginning of its name and *: what to spoil");
  add_value(verb, "--fails", "CODE", options.fails,
            "It fails with this code: a number or its NVML name")
      ->needs(call);
  verb.add_flag("--hangs", options.hangs, "It does not return until faults are cleared")
      ->needs(call);
  verb.add_option("--skip", options.skip, "... after so many calls went well")
      ->check(whole_in(0, 1 << 30))
      ->needs(call);
  verb.add_option("--times", options.times, "... so many times; default: for ever")
      ->check(whole_in(1, 1 << 30))
      ->needs(call);
  verb.add_flag("--lost", options.lost, "The GPU is lost; it comes back without its settings");
  verb.add_flag("--writes-ignored", options.writes_ignored, "Writes succeed and do nothing");
  add_value(verb, "--counters", "frozen|backwards|wrapped|jump", options.counters,
            "What the energy counter does")
      ->check(one_of({"frozen", "backwards", "wrapped", "jump"}));
  verb.add_flag("--absurd", options.absurd, "Sensors show numbers that cannot be");
  verb.add_flag("--mig", options.mig, "MIG is switched on: no utilisation, settings gone");
  verb.add_option("--xid", options.xid, "The driver reports an Xid error of that number")
      ->check(whole_in(1, 999));
  CLI::Option* kill = add_value(verb, "--kill-writer", "before|after", options.kill_writer,
                                "Kill the process that writes, before or after it took effect")
                          ->check(one_of({"before", "after"}));
  verb.add_option("--at", options.at, "... at this write from now on")
      ->check(whole_in(1, 1 << 30))
      ->needs(kill);
  verb.add_flag("--clear", options.clear, "Make everything well again");
  add_sim_directory(verb, options);
  verb.footer(examples({"derate sim fault --call nvmlDeviceGetPowerUsage --fails timeout",
                        "derate sim fault --call 'nvmlDeviceSet*' --fails no_permission --skip 2",
                        "derate sim fault -i 0 --lost", "derate sim fault --clear"}));
}

void add_engine_address(CLI::App& verb, SimDcgmAddress& options) {
  add_value(
      verb, "--listen", "ADDRESS", options.listen,
      "Where it listens: 127.0.0.1:PORT or unix:/PATH; default: hostengine in the directory of "
      "the simulated GPUs");
  add_sim_directory(verb, options);
}

void add_sim_dcgm(CommandLine& line, CLI::App& sim) {
  auto [verb, options] = line.add_verb<SimDcgmOptions>(
      sim, "dcgm", "Run a DCGM host engine of served GPUs, until Ctrl-C");
  add_value(verb, "--engine-version", "VERSION", options.engine_version,
            "The version that it reports");
  add_engine_address(verb, options);
  verb.footer(examples({"derate sim dcgm", "derate sim dcgm --listen 127.0.0.1:5555"}));
  auto [fault, faults] = line.add_verb<SimDcgmFaultOptions>(
      sim, "dcgm-fault", "Let something go wrong with that host engine; all else is well again");
  add_value(fault, "faults", "FAULT", faults.faults,
            "paused, taken (by another process), no_module, zeros, frozen, lies, shuffled, "
            "late=SECONDS; none: all is well");
  add_engine_address(fault, faults);
  fault.footer(examples({"derate sim dcgm-fault taken", "derate sim dcgm-fault frozen late=0.5",
                         "derate sim dcgm-fault"}));
}

void add_sim_verbs(CommandLine& line) {
  CLI::App& sim = *line.app.add_subcommand("sim", "Simulated GPUs");
  sim.require_subcommand(1);
  auto [list, options] =
      line.add_verb<SimListOptions>(sim, "list", "List chips and workloads, with their sources");
  CLI::Option* chip = add_value(list, "chip", "CHIP", options.chip,
                                "One chip, by name or by a path to its file; default: all");
  list.add_flag("--toml", options.toml,
                "Print the file of a built-in chip, to begin one's own with (docs/chips.md)")
      ->needs(chip);
  end_verb(list, options,
           {"derate sim list", "derate sim list H200 --json",
            "derate sim list H200 --toml > card.toml", "derate sim list ./card.toml"});
  add_sim_serve(line, sim);
  add_sim_job(line, sim);
  add_sim_show(line, sim);
  add_sim_fault(line, sim);
  add_sim_dcgm(line, sim);
  sim.footer(examples({"derate sim list H200 --json", "derate sim serve --chip H200 --gpus 8",
                       "derate sim job GEMM --work 60s", "derate sim show"}));
}

void add_data(CLI::App& verb, std::string& data) {
  add_value(verb, "--data", "DIR", data,
            "Folder of the measured tables; default: as when it was run")
      ->envname("DERATE_DATA");
}

constexpr const char* kCellsHelp = "Of a stress grid show every cell, not the grid alone";

void add_lab_run(CommandLine& line, CLI::App& lab) {
  auto [run, options] =
      line.add_verb<LabRunOptions>(lab, "run", "Run an experiment, or what of it is left to run");
  add_value(run, "experiment", "FILE", options.experiment, "The experiment, a TOML file")
      ->required();
  add_value(run, "-o,--output", "FILE", options.results,
            "Where the results go; default: beside the experiment, with .lab for its ending");
  add_data(run, options.data);
  run.add_option("--threads", options.threads, "Sessions at a time; default: one a core")
      ->check(whole_in(1, 1024));
  run.add_flag("--fresh", options.fresh, "Begin anew: what is in the results is dropped");
  run.add_flag("--dry-run", options.dry_run,
               "In place real: policies decide and record, nothing is ever written");
  run.add_flag("--apps", options.apps, "Show every application");
  run.add_flag("--cells", options.cells, kCellsHelp);
  end_verb(run, options, {"derate lab example > mine.toml", "derate lab run mine.toml"},
           "Ctrl-C ends it after the sessions that run; the same command goes on from there.\n");
}

void add_lab_files(CommandLine& line, CLI::App& lab) {
  auto [exported, out] = line.add_verb<LabExportOptions>(
      lab, "export", "Write an experiment's results as CSV and JSON");
  add_value(exported, "results", "FILE", out.results, "What `derate lab run` wrote")->required();
  exported.add_option("folder", out.folder, "Where the files go; made when it is not there")
      ->required();
  add_data(exported, out.data);
  end_verb(exported, out, {"derate lab export mine.lab mine-files"},
           "Also the files that the published GEEPAFS experiments leave, a set a policy.\n");

  auto [import, tables] = line.add_verb<LabImportOptions>(
      lab, "import", "Check measured tables and keep them for experiments");
  add_value(import, "--performance", "CSV", tables.performance, "Applications by clock, any unit")
      ->required();
  add_value(import, "--power", "CSV", tables.power, "The same in watts")->required();
  add_value(import, "--utilisation", "CSV", tables.utilisation,
            "What the counters showed, percent");
  add_value(import, "--chip", "CHIP", tables.chip,
            "The chip that they were measured on, by name or by a path to its file");
  import.add_option("folder", tables.folder, "Where they go")->required();
  end_verb(import, tables, {"derate lab import --performance perf.csv --power power.csv my-tables"},
           "In an experiment: [workloads] imported = \"my-tables\"\n");

  auto [log, log_options] =
      line.add_verb<LabLogOptions>(lab, "log", "Sum up a log of the published GEEPAFS daemon");
  add_value(log, "log", "FILE", log_options.log, "dvfs_*.out")->required();
  end_verb(log, log_options, {"derate lab log dvfs_Assure_p90.out"});
}

// The options of a bench of simulated runs: how many, of which seeds, and how many at a time.
template <class Options>
void add_seeded_runs(CLI::App& verb, Options& options, const char* of_what) {
  verb.add_option("--seeds", options.seeds, fmt::format("Runs of each {}", of_what))
      ->check(whole_in(1, 1000));
  verb.add_option("--first-seed", options.first_seed, "The first run's seed; the others follow");
  add_value(verb, "-j,--jobs", "THREADS", options.threads, "Runs at a time; default: one a core")
      ->check(whole_in(1, 1024));
}

void add_lab_attribution(CommandLine& line, CLI::App& lab) {
  std::string scenarios;
  for (const TenantScenario& scenario : tenant_scenarios())
    scenarios += fmt::format("{}{}", scenarios.empty() ? "" : ", ", scenario.name);
  auto [verb, options] = line.add_verb<LabAttributionOptions>(
      lab, "attribution", "Judge the methods that split a GPU's power, where the truth is known");
  verb.add_option("--scenario", options.scenarios,
                  fmt::format("Only these, of {}; default: all", scenarios))
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--method", options.methods,
                  "Only these, as the tables name them, or with and without what is in brackets; "
                  "default: all")
      ->delimiter(',');
  add_seeded_runs(verb, options, "scenario");
  verb.add_option("--minutes", options.minutes, "Length of a run, simulated")
      ->check(whole_in(6, 1440));
  add_value(verb, "--driver-cost", "TIMES", options.driver_cost,
            "The driver's calls take so many times the CPU time of an H200's, and surveys read the "
            "energy counter less often; default: 0, each tick reads it")
      ->check(in_range(0, 100));
  end_verb(verb, options,
           {"derate lab attribution", "derate lab attribution --scenario A,B --seeds 2",
            "derate lab attribution --method online,equal --json"},
           "docs/attribute-results.md says what the scenarios and the figures are.\n");
}

void add_lab_shares(CommandLine& line, CLI::App& lab) {
  auto [verb, options] = line.add_verb<LabSharesOptions>(
      lab, "shares", "Judge how a GPU's power is split among processes, where the truth is known");
  verb.add_option("--world", options.worlds, "Only worlds whose names begin with one of these")
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_flag("--list", options.list, "Print the names of the worlds");
  verb.add_option("--drawn", options.drawn, "So many worlds are drawn by the first seed")
      ->check(whole_in(0, 1000));
  add_seeded_runs(verb, options, "world");
  end_verb(verb, options,
           {"derate lab shares", "derate lab shares --world parked,light --seeds 2",
            "derate lab shares --drawn 100 --first-seed 9 --json"},
           "docs/attribute-results.md says what the worlds and the figures are.\n");
}

void add_lab_verbs(CommandLine& line) {
  CLI::App& lab = *line.app.add_subcommand("lab", "Experiments: policies on GPUs, side by side");
  lab.require_subcommand(1);
  add_lab_run(line, lab);
  auto [show, options] =
      line.add_verb<LabShowOptions>(lab, "show", "Show the figures of an experiment's results");
  add_value(show, "results", "FILE", options.results, "What `derate lab run` wrote")->required();
  add_data(show, options.data);
  show.add_flag("--apps", options.apps, "Show every application");
  show.add_flag("--cells", options.cells, kCellsHelp);
  add_value(show, "--policy", "LABEL", options.policies, "Only these policies, by label")
      ->delimiter(',')
      ->allow_extra_args(false);
  end_verb(show, options, {"derate lab show mine.lab --apps", "derate lab show mine.lab --json"});
  add_lab_files(line, lab);
  auto [check, check_options] = line.add_verb<LabCheckOptions>(
      lab, "check", "Check an experiment, and say what it would run");
  add_value(check, "experiment", "FILE", check_options.experiment, "The experiment, a TOML file")
      ->required();
  add_data(check, check_options.data);
  end_verb(check, check_options, {"derate lab check mine.toml"});
  add_lab_attribution(line, lab);
  add_lab_shares(line, lab);
  line.add_verb<LabExampleOptions>(lab, "example", "Print an experiment, with comments")
      .verb.footer(examples({"derate lab example > mine.toml"}));
  add_plain_verb<LabWorkloadsOptions>(line, lab, "workloads", "List the mixes of phases",
                                      {"derate lab workloads"});
  lab.footer(examples({"derate lab example > mine.toml", "derate lab run mine.toml",
                       "derate lab show mine.lab --apps"}));
}

// What tunes the run, with a job or without.
void add_knob(CLI::App& verb, TuneRunOptions& options, CLI::Option* job) {
  verb.add_option("--selector", options.selector,
                  "Without a job: what is best, energy, time, cost:ETA with ETA in [0, 1], "
                  "max-slowdown:FACTOR with FACTOR in [1, 2]; default: cost:0.5")
      ->excludes(job);
  add_value(verb, "--knob", "power-limit|clock", options.knob,
            "Without a job: what is turned; default: power-limit")
      ->excludes(job);
  verb.add_option("--model", options.model,
                  "Without a job: what the daemon knows under this tag is used, and kept")
      ->excludes(job);
  add_value(verb, "--highest", "WATTS", options.highest_w,
            "Highest power limit that may be used; default: the one found on the GPUs")
      ->check(in_range(1, 10'000))
      ->excludes(job);
  add_value(
      verb, "--guard", "FACTOR", options.guard,
      "Time that the command may take at most, over that at the highest setting; default: 1.5")
      ->check(in_range(1, 2))
      ->excludes(job);
}

// How the daemon is told of the metric.
void add_metric(CLI::App& verb, TuneRunOptions& options) {
  add_value(verb, "--metric-pattern", "REGEX", options.metric_pattern,
            "An extended regular expression: where it matches in a line, its first group is the "
            "metric; default: lines such as 'derate: epoch=3 metric=0.61'");
  add_value(verb, "--epoch-pattern", "REGEX", options.epoch_pattern,
            "The same for the number of epochs done; default: each metric is an epoch");
  add_value(verb, "--metric-file", "FILE", options.metric_file,
            "A file with a line for each epoch: its last is the metric");
  add_value(verb, "--oom-pattern", "REGEX", options.oom_patterns,
            "A line that says that the batch size does not fit into memory, when the command "
            "fails; may be repeated; beside those of CUDA and PyTorch")
      ->allow_extra_args(false);
  add_time(verb, "--grace", options.grace_s,
           "Time between SIGTERM and SIGKILL for a command that is to stop", {0, 3600, "10s"});
  verb.add_flag("--no-retry", options.no_retry, "One try, also where it does not reach the target");
}

void add_tune_run(CommandLine& line, CLI::App& tune) {
  auto [run, options] = line.add_verb<TuneRunOptions>(
      tune, "run", "Run a job with the batch size that its history asks for, and tune its GPUs");
  CLI::Option* job = run.add_option("--job", options.job,
                                    "The job; default: none, only its limit or clock is tuned")
                         ->envname("DERATE_TUNE_JOB");
  add_own_gpu_choice(run, options.gpus);
  add_knob(run, options, job);
  add_metric(run, options);
  add_config(run, options.policy.config);
  add_command(run, options);
  // A job's GPUs are the daemon's: what only this process could do would do nothing.
  for (const char* ours : {"--sim", "--records", "--config"}) run.get_option(ours)->excludes(job);
  run.footer(
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
  auto [verb, options] = line.add_verb<TuneReplayOptions>(
      tune, "replay", "Replay jobs that recur from measured traces, policy by policy");
  add_value(verb, "--train", "FILE", options.train,
            "Epochs to target by batch size: summary_train.csv")
      ->required();
  add_value(verb, "--power", "FILE", options.power,
            "Epoch time and power by limit: summary_power_GPU.csv; may be repeated")
      ->allow_extra_args(false)
      ->required();
  verb.add_option("--workload", options.workloads,
                  fmt::format("Only these, of {}; default: all", workloads))
      ->delimiter(',')
      ->allow_extra_args(false);
  verb.add_option("--policy", options.policies,
                  fmt::format("Only these, of {}; default: all", policies))
      ->delimiter(',')
      ->allow_extra_args(false);
  add_value(verb, "--targets", "reported|tuning", options.targets,
            "The reported targets, or those that our own constants were chosen on")
      ->check(one_of({"reported", "tuning"}));
  verb.add_option("--seeds", options.seeds, "So many seeds")->check(whole_in(1, 100000));
  verb.add_option("--first-seed", options.first_seed, "The first of them")
      ->check(whole_in(1, 1000000));
  verb.add_option("--eta", options.eta, "Weight of energy against time in the cost")
      ->check(in_range(0, 1));
  verb.add_option("--beta", options.beta, "A run is stopped at so many times the best one's cost")
      ->check(in_range(1, 100));
  verb.add_option("--recurrences", options.recurrences,
                  "Runs of each job; default: 2 * batch sizes * limits, as published")
      ->check(whole_in(1, 100000));
  verb.add_option("--noise", options.noise,
                  "What profiles read of an epoch's time and power varies by this share")
      ->check(in_range(0, 1));
  add_value(verb, "--change", "nothing|target|sizes", options.change,
            "Half way: nothing, another target, or the best batch size moves three places")
      ->check(one_of({"nothing", "target", "sizes"}));
  verb.add_option("--budget", options.budget,
                  "What tune may cost above the default in sum after 5 runs; default: no limit")
      ->check(in_range(0, 10));
  verb.add_option("--selector", options.selector,
                  "For one run: energy, time, cost:ETA, max-slowdown:FACTOR");
  verb.add_flag("--brief", options.brief, "Print what it comes to over all jobs, not each");
  end_verb(verb, options,
           {"derate tune replay --train summary_train.csv --power summary_power_v100.csv",
            "derate tune replay --train summary_train.csv --power summary_power_v100.csv --policy "
            "tune,zeus --seeds 1000 --json"});
}

void add_tune_verbs(CommandLine& line) {
  CLI::App& tune = *line.app.add_subcommand(
      "tune", "Training jobs that recur: their batch size, and the limit within a run");
  tune.require_subcommand(1);
  add_tune_job_verbs(line, tune);
  add_tune_run(line, tune);
  add_tune_replay(line, tune);
  tune.footer(examples({"derate tune job list", "derate tune run --job bert -- ./train"}));
}

void add_report(CommandLine& line) {
  auto [report, options] = line.add_verb<ReportOptions>(
      line.app, "report", "Make a page of an experiment's results, in one file");
  add_value(report, "results", "FILE", options.results, "What `derate lab run` wrote")->required();
  add_value(report, "-o,--output", "FILE", options.output,
            "The page; default: beside the results, with .html for its ending");
  CLI::Option* beside = add_value(report, "--beside", "FILE", options.beside,
                                  "Other results, side by side on the same page");
  add_data(report, options.data);
  add_value(report, "--job", "ID", options.job,
            "Print one job's ticks instead; the page and `lab show --apps` have numbers")
      ->excludes("--output")
      ->excludes(beside);
  add_json(report, options);
  report.get_option("--json")->excludes(beside);
  report.footer(examples({"derate report mine.lab", "derate report mine.lab --beside theirs.lab",
                          "derate report mine.lab --job 17 --json"}));
}

void add_doctor(CommandLine& line) {
  auto [doctor, options] = line.add_verb<DoctorOptions>(
      line.app, "doctor", "Say what this machine allows, and what to do where it does not");
  doctor.add_flag("-v,--verbose", options.verbose, "Print all findings of each GPU");
  doctor.add_flag("--cost", options.cost,
                  "Measure the CPU time that the driver takes for each reading, for 2 s a GPU");
  end_verb(doctor, options,
           {"derate doctor", "derate doctor -v", "derate doctor --cost", "derate doctor --json"},
           "Exit code 0: all is well; 1: it works, with limits; 2: it cannot work here.\n");
}

void add_config_of_daemon(CommandLine& line, CLI::App& config) {
  auto [set, set_options] =
      line.add_verb<ConfigSetOptions>(config, "set", operation<ConfigSet>().what);
  add_value(set, "settings", "KEY=VALUE", set_options.set,
            "Settings, and parameters of policies: SECTION.KEY=VALUE, policy.NAME.PARAMETER=VALUE");
  add_value(set, "--unset", "KEY", set_options.unset, "Take back what was set, each");
  set.add_flag("--dry-run", set_options.dry_run, "Check it and show what would change");
  end_verb(set, set_options,
           {"derate config set safety.idle_after_s=2 --dry-run",
            "derate config set governor.policy=assure policy.assure.delta=0.05",
            "derate config set --unset policy.assure.delta"});
  add_plain_verb<ConfigDiffOptions>(line, config, "diff", operation<ConfigDiff>().what,
                                    {"derate config diff && systemctl reload derated"});
}

void add_config_verbs(CommandLine& line) {
  constexpr const char* kFileHelp =
      "The file; default: $DERATE_CONFIG, else /etc/derate/derate.toml";
  CLI::App& config = *line.app.add_subcommand("config", "Check, print or set the configuration");
  config.require_subcommand(1);
  auto [check, check_options] =
      line.add_verb<ConfigCheckOptions>(config, "check", "Check a configuration file");
  add_value(check, "file", "FILE", check_options.file, kFileHelp);
  end_verb(check, check_options, {"derate config check derate.toml"});
  auto [print, print_options] = line.add_verb<ConfigPrintOptions>(
      config, "print", "Print the settings in force, with comments");
  add_value(print, "file", "FILE", print_options.file, kFileHelp);
  end_verb(print, print_options, {"derate config print > derate.toml"});
  config.footer(examples({"derate config check derate.toml", "derate config print",
                          "derate config set safety.idle_after_s=2", "derate config diff"}));
  add_config_of_daemon(line, config);
}

void add_token_verbs(CommandLine& line) {
  CLI::App& token = *line.app.add_subcommand(
      "token", "Create, list and revoke tokens for the API (derate-agent)");
  token.require_subcommand(1);
  auto [create, create_options] =
      line.add_verb<TokenCreateOptions>(token, "create", operation<TokenCreate>().what);
  add_value(create, "name", "NAME", create_options.name, "What to call it")->required();
  add_value(create, "--role", "reader|user|operator", create_options.role, "What it allows")
      ->check(one_of({"reader", "user", "operator"}))
      ->capture_default_str();
  add_value(create, "--days", "DAYS", create_options.days, "When it expires")
      ->check(in_range(0.001, 3650))
      ->capture_default_str();
  end_verb(create, create_options,
           {"derate token create grafana",
            "derate token create scheduler --role operator --days 90 > secret"},
           "The token alone goes to standard output; it is not shown again.\n");
  add_plain_verb<TokenListOptions>(line, token, "list", operation<TokenList>().what,
                                   {"derate token list"});
  auto [revoke, revoke_options] =
      line.add_verb<TokenRevokeOptions>(token, "revoke", operation<TokenRevoke>().what);
  add_value(revoke, "name", "NAME", revoke_options.name, "Which")->required();
  end_verb(revoke, revoke_options, {"derate token revoke grafana"});
  token.footer(examples({"derate token create grafana", "derate token list"}));
}

void add_others(CommandLine& line) {
  auto [completion, completion_options] =
      line.add_verb<CompletionOptions>(line.app, "completion", "Print a completion script");
  add_value(completion, "shell", "bash|zsh|fish", completion_options.shell, "The shell")
      ->required();
  completion.footer(examples({"derate completion bash > /etc/bash_completion.d/derate"}));
  auto [manual, manual_options] =
      line.add_verb<ManualOptions>(line.app, "manual", "Print a manual page (roff)");
  manual.add_option("verb", manual_options.verb, "Of this verb alone; default: of all");
  manual.add_flag("--list", manual_options.list, "List the verbs that have a page of their own")
      ->excludes("verb");
  manual.footer(examples({"derate manual | man -l -", "derate manual run | man -l -"}));
  auto [codes, codes_options] =
      line.add_verb<ExitCodesOptions>(line.app, "exit-codes", "List what the exit codes mean");
  end_verb(codes, codes_options, {"derate exit-codes"}, "\n" + exit_code_text());
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
    {"Run and tune", {"run", "energy", "compare", "advise", "tune", "beat"}},
    {"Watch", {"status", "top", "ui", "why", "events", "attribute"}},
    {"Look back", {"history", "savings", "bill"}},
    {"Schedulers", {"slurm"}},
    {"The daemon", {"policy", "release", "pause", "resume", "restore", "config", "token"}},
    {"Lab and simulation", {"lab", "report", "sim", "record", "replay"}},
    {"Tools", {"completion", "manual", "exit-codes"}},
};

// Null: no group has it.
const char* group_of(const std::string& verb) {
  for (const VerbGroup& group : kVerbGroups)
    if (std::find(group.verbs.begin(), group.verbs.end(), verb) != group.verbs.end())
      return group.name;
  return nullptr;
}

// Declares these verbs of derate.
struct VerbsOf {
  std::initializer_list<const char*> verbs;
  void (*add)(CommandLine&);
};
const VerbsOf kVerbs[] = {
    {{"doctor"}, add_doctor},
    {{"demo"}, add_demo},
    {{"run"}, add_run},
    {{"status"}, add_status},
    {{"energy"}, add_energy},
    {{"compare"}, add_compare},
    {{"attribute"}, add_attribute},
    {{"bill"}, add_bill},
    {{"history"}, add_history},
    {{"savings"}, add_savings},
    {{"why"}, add_why},
    {{"advise"}, add_advise},
    {{"ui"}, add_ui},
    {{"events"}, add_events},
    {{"beat"}, add_beat},
    {{"slurm"}, add_slurm_verbs},
    {{"tune"}, add_tune_verbs},
    {{"policy"}, add_policy_verbs},
    {{"top", "restore", "release", "pause", "resume"}, add_safety_verbs},
    {{"record"}, add_record},
    {{"replay"}, add_replay},
    {{"sim"}, add_sim_verbs},
    {{"lab"}, add_lab_verbs},
    {{"report"}, add_report},
    {{"config"}, add_config_verbs},
    {{"token"}, add_token_verbs},
    {{"completion", "manual", "exit-codes"}, add_others},
};

// `only`: of this verb alone, if it is one: all take some 10 ms, which a hook of Slurm's has not.
std::unique_ptr<CommandLine> make_command_line(std::string_view only = "") {
  auto line = std::make_unique<CommandLine>();
  line->app.formatter(std::make_shared<HelpFormat>());  // before the verbs, which take it over
  line->app.set_version_flag("--version", std::string("derate ") + kVersion);
  line->app.require_subcommand(1);
  line->app.footer(
      "`derate VERB --help`, or `derate help VERB`, has each verb's options and examples;\n"
      "`derate exit-codes` lists what the exit codes mean.");
  line->app.get_formatter()->column_width(34);
  for (const VerbsOf& each : kVerbs)
    if (only.empty() || std::find(each.verbs.begin(), each.verbs.end(), only) != each.verbs.end())
      each.add(*line);
  refuse_empty_values(line->app);
  for (CLI::App* verb : line->app.get_subcommands({}))
    if (const char* const group = group_of(verb->get_name())) verb->group(group);
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

// The verb of arguments that are right; empty: all verbs are needed, for help or for an error.
std::optional<Verb> parse_one_verb(int argc, const char* const* argv) {
  if (argc < 2 || argv[1][0] == '-') return std::nullopt;
  const auto line = make_command_line(argv[1]);
  try {
    line->app.parse(argc, const_cast<char**>(argv));
  } catch (const CLI::Error&) {
    return std::nullopt;
  }
  return std::move(line->chosen);
}

std::variant<Verb, Exit> parse_command_line(int argc, const char* const* argv) {
  if (auto verb = parse_one_verb(argc, argv)) return *std::move(verb);
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

// Of the environment, for the manual.
constexpr std::pair<const char*, const char*> kVariables[] = {
    {"DERATE_CONFIG", "The configuration file."},
    {"DERATE_NVML_LIBRARY", "The NVML library to load."},
    {"DERATE_RUN_DIR", "Where running governors publish their state."},
    {"DERATE_BEAT_SOCKET", "Where derate beat is heard first."},
    {"DERATE_LAUNCHES_SOCKET", "Where a program's launches are counted; derate run sets it."},
    {"DERATE_PROGRESS", "off: launches are not counted."},
    {"DERATE_CLIENT_SOCKET", "Where programs ask for windows of energy first."},
    {"DERATE_API_SOCKET", "Where the daemon's API is asked first."},
    {"DERATE_TUNE_JOB", "The --job of derate tune run; sbatch --derate-job sets it."},
    {"DERATE_DELTA", "What a process may lose: a number in [0, 0.5] or a class of work."},
    {"DERATE_STATE_DIR", "Where journals, the audit log and models of work are kept."},
    {"NO_COLOR", "No colours on a terminal."}};

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
  out += ".SH ENVIRONMENT\n";
  for (const auto& [name, what] : kVariables) out += fmt::format(".TP\n.B {}\n{}\n", name, what);
  return out;
}

Result<std::string> manual_page_of(const std::string& verb) {
  return verb_page(make_command_line()->app, verb, kVersion);
}

std::string verbs_with_pages() { return verb_names(make_command_line()->app); }

}  // namespace derate::cli
