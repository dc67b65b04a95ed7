#include "integ/slurm/job_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace derate {
namespace {

const std::string& name_of(ReportBy by, const ReportJob& job) {
  switch (by) {
    case ReportBy::account:
      return job.account;
    case ReportBy::user:
      return job.user;
    case ReportBy::job:
      break;
  }
  return job.shown;
}

}  // namespace

Result<ReportBy> parse_report_by(std::string_view name) {
  if (name == "account") return ReportBy::account;
  if (name == "user") return ReportBy::user;
  if (name == "job") return ReportBy::job;
  return Error{Errc::invalid_argument,
               fmt::format("--by {}: allowed are account, user and job", name.substr(0, 40))};
}

void ReportLine::add(const ReportJob& job) {
  ++jobs;
  if (!job.energy) return;
  const JobEnergy& energy = *job.energy;
  if (energy.joules) {
    ++measured;
    joules += *energy.joules;
    if (energy.nodes < energy.of_nodes) ++partly;
  }
  if (energy.kept) {
    ++promised;
    if (*energy.kept) ++kept;
  }
  if (energy.saved_joules) saved_joules = saved_joules.value_or(0) + *energy.saved_joules;
  // Errors of one model go together.
  if (energy.saved_sd_joules)
    saved_sd_joules = saved_sd_joules.value_or(0) + *energy.saved_sd_joules;
}

std::vector<ReportLine> report_by(ReportBy by, const std::vector<ReportJob>& jobs) {
  std::map<std::string, ReportLine> lines;
  for (const ReportJob& job : jobs) lines[name_of(by, job)].add(job);
  std::vector<ReportLine> out;
  for (auto& [name, line] : lines) {
    line.name = name;
    out.push_back(std::move(line));
  }
  std::stable_sort(out.begin(), out.end(), [](const ReportLine& a, const ReportLine& b) {
    if (a.name.empty() != b.name.empty()) return b.name.empty();
    return a.joules > b.joules;
  });
  return out;
}

}  // namespace derate
