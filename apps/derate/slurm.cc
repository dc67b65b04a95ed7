// derate slurm jobs, gpus and report: what Slurm's jobs have used.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "api/requests.h"
#include "apps/common/open_gpus.h"
#include "attribute_view.h"
#include "base/clock.h"
#include "base/energy_text.h"
#include "base/json.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "base/when.h"
#include "command_options.h"
#include "config/paths.h"
#include "control.h"
#include "integ/slurm/job_gpus.h"
#include "integ/slurm/job_report.h"
#include "kept_file.h"
#include "service/transport/daemon_call.h"
#include "slurm_commands.h"
#include "store/job_store.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

std::string number_text(const std::optional<double>& value, double unit, int digits) {
  return value ? fixed_text(*value / unit, digits) : "-";
}

std::string unit_text(const std::optional<double>& value, double unit, int digits,
                      const char* name) {
  return value ? fmt::format("{} {}", number_text(value, unit, digits), name) : "-";
}

std::string saved_text(const std::optional<double>& joules, const std::optional<double>& sd) {
  if (!joules) return "-";
  return fmt::format("{} ± {}", kwh_text(*joules), sd ? kwh_text(*sd) : "-");
}

std::string state_text(const AllocationView& each) {
  if (each.ended) return each.hands_off.empty() ? "ended" : "was left alone: " + each.hands_off;
  if (!each.hands_off.empty()) return "left alone: " + each.hands_off;
  for (const AllocationGpuView& gpu : each.gpus)
    if (!gpu.why.empty()) return fmt::format("GPU {}: {}", gpu.index, gpu.why);
  return each.policy.empty() ? "measured" : "governed by " + each.policy;
}

std::string gpus_text(const AllocationView& each) {
  std::string out;
  for (const AllocationGpuView& gpu : each.gpus)
    out += fmt::format("{}{}", out.empty() ? "" : ",", gpu.index);
  return out.empty() ? "-" : out;
}

std::string kept_text(const std::optional<bool>& kept) {
  if (!kept) return "-";
  return *kept ? "kept" : "broken";
}

void add_row(Table& table, const AllocationView& each) {
  const JobEnergy energy = energy_of(each);
  const double span = std::max(each.time_seconds, 1e-3);
  table.add({each.job.array.empty() ? each.job.id : each.job.array, each.job.user,
             each.job.account.empty() ? "-" : each.job.account, gpus_text(each),
             when_text(WallTime(from_seconds(each.begun_unix_seconds))),
             fmt::format("{:.0f} s", each.time_seconds),
             each.energy_joules ? kwh_text(*each.energy_joules) : "-",
             unit_text(each.energy_joules, span, 0, "W"),
             saved_text(energy.saved_joules, energy.saved_sd_joules), kept_text(energy.kept),
             state_text(each)},
            each.ended ? Paint::dim : Paint::plain);
}

std::string no_job_text(const AllocationsAnswer& answer) {
  std::string out;
  for (const NoJobView& gpu : answer.no_job)
    out += fmt::format("GPU {} without a job: {} in {:.0f} s\n", gpu.index,
                       gpu.energy_joules ? kwh_text(*gpu.energy_joules) : "-", gpu.time_seconds);
  return out;
}

// --- the report ----------------------------------------------------------------------------------

struct ReportTime {
  WallTime from{}, to{};
};

Result<ReportTime> time_of(const SlurmReportOptions& options, WallTime now) {
  ReportTime out;
  out.from = options.from.empty() ? month_begin(now) : TRY(parse_when(options.from, now));
  out.to = TRY(parse_when(options.to, now));
  if (out.from >= out.to)
    return Error{Errc::invalid_argument, fmt::format("--from {} is not before --to {}",
                                                     when_text(out.from), when_text(out.to))};
  return out;
}

// Kept by this machine's derated, by job; jobs that ran more than once are summed.
Result<std::map<std::string, ReportJob>> jobs_here(const SlurmReportOptions& options,
                                                   const ReportTime& time) {
  const std::string file = options.file.empty() ? kept_file(job_file(), "jobs.db") : options.file;
  if (options.file.empty()) TRY(check_way(file));
  const auto rows = read_jobs(file, {.from = time.from,
                                     .to = time.to,
                                     .job = "",
                                     .user = options.user,
                                     .account = options.account});
  std::map<std::string, ReportJob> out;
  if (!rows.ok() && rows.error().code == Errc::not_found && options.file.empty()) return out;
  if (!rows.ok()) return rows.error();
  for (const JobRow& row : *rows) {
    const auto account = answer_of<AllocationView>(parse_json(row.document));
    if (!account.ok()) continue;
    ReportJob job{.shown = row.array.empty() ? row.job : row.array,
                  .user = row.user,
                  .account = row.account,
                  .energy = energy_of(*account)};
    const auto [at, added] = out.emplace(row.job, job);
    if (added) continue;
    at->second.energy->add(*job.energy);
    at->second.energy->nodes = 1;
  }
  return out;
}

std::string sacct_time(WallTime time) {
  std::string out = second_text(time);
  std::replace(out.begin(), out.end(), ' ', 'T');
  return out;
}

Result<std::vector<SacctJob>> jobs_of_sacct(const SlurmReportOptions& options,
                                            const ReportTime& time) {
  constexpr Duration kPatience = std::chrono::seconds(60);
  std::vector<std::string> command{"sacct",
                                   "-n",
                                   "-P",
                                   "-X",
                                   "-a",
                                   "-S",
                                   sacct_time(time.from),
                                   "-E",
                                   sacct_time(time.to),
                                   fmt::format("--format={}", kSacctFormat)};
  if (!options.account.empty()) command.insert(command.end(), {"-A", options.account});
  if (!options.user.empty()) command.insert(command.end(), {"-u", options.user});
  return parse_sacct(TRY(slurm_command(command, kPatience)));
}

struct Report {
  ReportTime time;
  bool of_cluster = false;  // by sacct; else of one machine alone
  std::vector<ReportLine> lines;
};

Result<Report> report_of(const SlurmReportOptions& options, WallTime now) {
  Report out{.time = TRY(time_of(options, now))};
  const ReportBy by = TRY(parse_report_by(options.by));
  auto here = TRY(jobs_here(options, out.time));
  std::vector<ReportJob> jobs;
  if (options.here || !options.file.empty()) {
    for (auto& [id, job] : here) jobs.push_back(std::move(job));
  } else {
    const auto cluster = jobs_of_sacct(options, out.time);
    if (!cluster.ok())
      return Error(cluster.error()).with("--here reports this machine's jobs alone");
    out.of_cluster = true;
    for (const SacctJob& job : *cluster) {
      ReportJob each{job.shown, job.user, job.account, energy_in(job.comment)};
      if (const auto at = here.find(job.id); at != here.end() && !each.energy) {
        each.energy = at->second.energy;
        each.energy->of_nodes = static_cast<int>(job.nodes);
      }
      jobs.push_back(std::move(each));
    }
  }
  out.lines = report_by(by, jobs);
  return out;
}

Json json_of(const Report& report) {
  Json rows = Json::array();
  for (const ReportLine& line : report.lines) {
    Json row = {{"name", line.name},
                {"jobs", line.jobs},
                {"measured_jobs", line.measured},
                {"partly_measured_jobs", line.partly},
                {"energy_joules", line.joules},
                {"promised_jobs", line.promised},
                {"kept_jobs", line.kept}};
    if (line.saved_joules) row["saved_joules"] = *line.saved_joules;
    if (line.saved_sd_joules) row["saved_sd_joules"] = *line.saved_sd_joules;
    rows.push_back(std::move(row));
  }
  Json out = {{"from", utc_text(report.time.from)},
              {"to", utc_text(report.time.to)},
              {"of_cluster", report.of_cluster},
              {"lines", std::move(rows)}};
  return out;
}

std::string text_of(const Report& report, const std::string& by) {
  std::string out =
      fmt::format("{} to {}, {}\n", when_text(report.time.from), when_text(report.time.to),
                  report.of_cluster ? "jobs that sacct lists" : "jobs of one machine");
  Table table({"<" + by, "jobs", "measured", "energy", "saved, as estimated", "promises kept"});
  int missing = 0, partly = 0;
  for (const ReportLine& line : report.lines) {
    missing += line.jobs - line.measured;
    partly += line.partly;
    table.add({line.name.empty() ? fmt::format("(no {})", by) : line.name,
               std::to_string(line.jobs), std::to_string(line.measured),
               line.measured == 0 ? "-" : kwh_text(line.joules),
               saved_text(line.saved_joules, line.saved_sd_joules),
               line.promised == 0 ? "-" : fmt::format("{} of {}", line.kept, line.promised)});
  }
  out += report.lines.empty() ? "no job in that time\n" : table.text();
  if (missing > 0)
    out += fmt::format("{} jobs have no account: their energy is not in it\n", missing);
  if (partly > 0) out += fmt::format("{} jobs are not measured on all of their nodes\n", partly);
  return out;
}

}  // namespace

Result<int> run_verb(const SlurmJobsOptions& options) {
  const Json answer = TRY(daemon_answer(TRY(ask_operators(AllocationList{.id = options.job}))));
  if (options.json) return print_json("slurm jobs", answer);
  const auto known = TRY(answer_of<AllocationsAnswer>(answer));
  Table table({"<job", "<user", "<account", "<GPUs", "<since", "time", "energy", "power", "saved",
               "<promise", "<state"});
  for (const AllocationView& each : known.allocations) add_row(table, each);
  print("{}", known.allocations.empty() ? "no job of a scheduler has reported a GPU here\n"
                                        : table.text() + no_job_text(known));
  return 0;
}

Result<int> run_verb(const SlurmGpusOptions& options) {
  add_system_folders();
  const SlurmNode node = TRY(slurm_node(slurm_node_query(options.node)));
  const SeenGpus seen = TRY(see_gpus());
  Json rows = Json::array();
  Table table({"Slurm", "<device file", "<GPU", "<UUID"});
  for (std::size_t place = 0; place < node.minors.size(); ++place) {
    const std::vector<int> one{static_cast<int>(place)};
    const auto found = job_gpus(one, node.minors, seen, node.constrained);
    const auto& minor = node.minors[place];
    Json row = {{"place", place}};
    if (minor) row["minor"] = *minor;
    if (found.ok())
      row["uuid"] = found->front();
    else
      row["why"] = found.error().message;
    rows.push_back(row);
    table.add({std::to_string(place), minor ? fmt::format("nvidia{}", *minor) : "-",
               found.ok() ? "proven" : "left alone",
               found.ok() ? found->front() : found.error().message});
  }
  if (options.json)
    return print_json("slurm gpus", {{"constrained", node.constrained}, {"gpus", rows}});
  print("{}", node.minors.empty() ? "slurmd -G lists no GPU of this node\n" : table.text());
  return 0;
}

Result<int> run_verb(const SlurmReportOptions& options) {
  add_system_folders();
  SystemClock clock;
  const Report report = TRY(report_of(options, clock.wall_now()));
  if (options.json) return print_json("slurm report", json_of(report));
  print("{}", text_of(report, options.by));
  return 0;
}

}  // namespace derate::cli
