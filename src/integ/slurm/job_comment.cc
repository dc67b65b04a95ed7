#include "integ/slurm/job_comment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/json.h"
#include "base/printing.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKey = "derate";
constexpr std::string_view kBegin = "{\"derate\":";

// sacctmgr 22.05 writes a backtick for each quote.
std::string with_quotes(std::string_view line) {
  std::string out(trim(line));
  std::replace(out.begin(), out.end(), '`', '"');
  return out;
}

bool is_ours(std::string_view line) { return with_quotes(line).starts_with(kBegin); }

template <class T>
void put(Json& out, const char* name, const std::optional<T>& value) {
  if (value) out[name] = *value;
}

double to_tenth(double value) { return std::round(value * 10) / 10; }

std::optional<double> sum(const std::optional<double>& a, const std::optional<double>& b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

std::optional<JobEnergy> energy_of(const Json& document) {
  if (!document.is_object() || !document.contains(kKey) || !document[kKey].is_object())
    return std::nullopt;
  const Json& in = document[kKey];
  const auto whole = [&](const char* name) {
    return static_cast<int>(std::clamp(number_at(in, name).value_or(0), 0.0, 1e6));
  };
  JobEnergy out{.joules = number_at(in, "joules"),
                .gpu_seconds = number_at(in, "gpu_seconds").value_or(0),
                .saved_joules = number_at(in, "saved_joules"),
                .saved_sd_joules = number_at(in, "saved_sd_joules"),
                .promised = number_at(in, "promised_performance_ratio"),
                .kept = std::nullopt,
                .gpus = whole("gpus"),
                .nodes = whole("nodes"),
                .of_nodes = whole("of_nodes"),
                .runs = std::max(whole("runs"), 1),
                .restart = whole("restart")};
  const auto kept = in.find("promise_kept");
  if (kept != in.end() && kept->is_boolean()) out.kept = kept->get<bool>();
  return out;
}

std::string share_prefix(const NodeShares& shares) { return shares.folder + "/" + shares.name; }

Result<void> check_folder(const std::string& folder) {
  struct ::stat found {};
  if (::lstat(folder.c_str(), &found) != 0)
    return Error{Errc::io, fmt::format("'{}': {}", folder, std::strerror(errno))};
  const bool own = S_ISDIR(found.st_mode) && found.st_uid == ::geteuid();
  if (!own || (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{Errc::no_permission,
                 fmt::format("'{}': allowed is a folder of user {} that nobody else may write to",
                             folder, ::geteuid())};
  return {};
}

// Names in the folder of files that are ours: "CLUSTER-JOB-RESTART.share.NODE" and "....sum".
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored))
    if (std::filesystem::is_regular_file(entry.symlink_status(ignored)))
      out.push_back(entry.path().filename().string());
  return out;
}

bool is_name_of_ours(std::string_view name) {
  const std::size_t share = name.find(".share.");
  const std::string_view job =
      name.ends_with(".sum") ? name.substr(0, name.size() - 4) : name.substr(0, share);
  if (job.size() == name.size()) return false;
  const auto words = split(job, '-');
  return words.size() >= 3 && parse_integer(words.back()) && parse_integer(words[words.size() - 2]);
}

std::vector<JobEnergy> shares_there(const NodeShares& shares) {
  std::vector<JobEnergy> out;
  for (const std::string& name : names_in(shares.folder)) {
    if (!name.starts_with(shares.name + ".share.") || name.ends_with(".tmp")) continue;
    const auto text = read_file(shares.folder + "/" + name);
    if (const auto energy = text.ok() ? energy_of(parse_json(*text)) : std::nullopt)
      out.push_back(*energy);
  }
  return out;
}

// The job's shares go. Its claim stays for a day, so that a node that comes late writes nothing.
void sweep(const NodeShares& shares, WallTime now) {
  constexpr auto kStays = std::chrono::hours(24);
  for (const std::string& name : names_in(shares.folder)) {
    const std::string path = shares.folder + "/" + name;
    struct ::stat found {};
    const bool known = ::lstat(path.c_str(), &found) == 0;
    const bool old = known && now - WallTime(std::chrono::seconds(found.st_mtime)) > kStays;
    if (name.starts_with(shares.name + ".share.") || (old && is_name_of_ours(name)))
      (void)remove_file(path).ok();
  }
}

// Of all processes on all nodes one makes it (O_EXCL holds over NFS from version 3 on, open(2)).
Result<bool> make_claim(const NodeShares& shares) {
  const std::string path = share_prefix(shares) + ".sum";
  const UniqueFd made(
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (made.get() >= 0) return true;
  if (errno == EEXIST) return false;
  return Error{Errc::io, fmt::format("'{}': {}", path, std::strerror(errno))};
}

}  // namespace

void JobEnergy::add(const JobEnergy& more) {
  joules = sum(joules, more.joules);
  gpu_seconds += more.gpu_seconds;
  const auto before = saved_joules;
  if (more.saved_joules) saved_joules = saved_joules.value_or(0) + *more.saved_joules;
  // Errors of one model on several nodes go together.
  if (more.saved_sd_joules)
    saved_sd_joules = (before ? saved_sd_joules.value_or(0) : 0) + *more.saved_sd_joules;
  if (more.promised) promised = std::max(promised.value_or(0), *more.promised);
  if (more.kept) kept = kept.value_or(true) && *more.kept;
  gpus += more.gpus;
  nodes += more.nodes;
  of_nodes = std::max(of_nodes, more.of_nodes);
}

std::string comment_line(const JobEnergy& energy) {
  Json in = Json::object();
  if (energy.joules) in["joules"] = to_tenth(*energy.joules);
  in["gpu_seconds"] = to_tenth(energy.gpu_seconds);
  if (energy.joules && energy.gpu_seconds > 0)
    in["mean_watts"] = to_tenth(*energy.joules / energy.gpu_seconds);
  if (energy.saved_joules) in["saved_joules"] = to_tenth(*energy.saved_joules);
  if (energy.saved_sd_joules) in["saved_sd_joules"] = to_tenth(*energy.saved_sd_joules);
  put(in, "promised_performance_ratio", energy.promised);
  put(in, "promise_kept", energy.kept);
  in["gpus"] = energy.gpus;
  in["nodes"] = energy.nodes;
  in["of_nodes"] = energy.of_nodes;
  if (energy.restart > 0) {
    in["runs"] = energy.runs;
    in["restart"] = energy.restart;
  }
  return Json{{kKey, std::move(in)}}.dump();
}

std::optional<JobEnergy> energy_in(std::string_view comment) {
  std::optional<JobEnergy> out;
  for (const std::string_view line : split(comment, '\n'))
    if (is_ours(line))
      if (auto energy = energy_of(parse_json(with_quotes(line)))) out = energy;
  return out;
}

std::string with_line(std::string_view comment, const std::string& line) {
  std::string out;
  for (const std::string_view each : split(comment, '\n'))
    if (!trim(each).empty() && !is_ours(each)) out += std::string(each) + "\n";
  return out + line;
}

Result<std::vector<SacctJob>> parse_sacct(std::string_view text) {
  constexpr std::size_t kColumns = 9;
  std::vector<SacctJob> out;
  for (const std::string_view line : split(text, '\n')) {
    const auto words = split(line, '|');
    const bool begins = words.size() >= kColumns && parse_integer(words[0]);
    if (!begins) {
      if (!out.empty()) out.back().comment += "\n" + std::string(line);
      if (out.empty() && !trim(line).empty())
        return Error{Errc::bad_data,
                     fmt::format("sacct: '{}' is no job", log_text(line.substr(0, 100)))};
      continue;
    }
    const auto text_at = [&](std::size_t at) { return std::string(words[at]); };
    SacctJob job{.id = text_at(0),
                 .shown = text_at(1),
                 .user = text_at(2),
                 .account = text_at(3),
                 .partition = text_at(4),
                 .state = text_at(5),
                 .elapsed_s = parse_integer(words[6]).value_or(0),
                 .nodes = parse_integer(words[7]).value_or(0),
                 .comment = text_at(8)};
    for (std::size_t at = kColumns; at < words.size(); ++at) job.comment += "|" + text_at(at);
    out.push_back(std::move(job));
  }
  return out;
}

SacctRuns runs_of(const std::vector<SacctJob>& jobs, const std::string& id) {
  SacctRuns out;
  for (const SacctJob& job : jobs) {
    if (job.id != id) continue;
    out.newest = job;
    const auto energy = energy_in(job.comment);
    if (energy && (!out.energy || energy->restart >= out.energy->restart)) out.energy = energy;
  }
  return out;
}

JobEnergy with_runs_before(JobEnergy run, const std::optional<JobEnergy>& before) {
  if (!before || before->restart > run.restart) return before.value_or(run);
  if (before->restart == run.restart) return before->runs > 1 ? *before : run;
  const int gpus = std::max(run.gpus, before->gpus), nodes = std::min(run.nodes, before->nodes);
  const bool whole = run.nodes >= run.of_nodes && before->nodes >= before->of_nodes;
  JobEnergy out = run;
  out.add(*before);
  out.gpus = gpus;
  out.of_nodes = run.of_nodes;
  out.nodes = whole ? run.of_nodes : std::min(nodes, run.of_nodes - 1);
  out.runs = before->runs + 1;
  return out;
}

Result<void> put_share(const NodeShares& shares, const JobEnergy& energy) {
  if (shares.folder.empty()) return {};
  TRY(check_folder(shares.folder));
  return write_file_atomically(fmt::format("{}.share.{}", share_prefix(shares), shares.node),
                               comment_line(energy), Durable::no, 0600);
}

Result<std::optional<JobEnergy>> claim_sum(const NodeShares& shares, bool late, WallTime now) {
  TRY(check_folder(shares.folder));
  std::optional<JobEnergy> sum;
  for (const JobEnergy& each : shares_there(shares)) {
    if (sum)
      sum->add(each);
    else
      sum = each;
  }
  if (!sum || (sum->nodes < shares.nodes && !late)) return std::optional<JobEnergy>();
  if (!TRY(make_claim(shares))) return std::optional<JobEnergy>();
  sweep(shares, now);
  return sum;
}

}  // namespace derate
