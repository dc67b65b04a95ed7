#include "integ/process_facts.h"

#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/number.h"
#include "core/job_class.h"
#include "integ/cgroup.h"
#include "integ/proc_files.h"

namespace derate {
namespace {

constexpr std::size_t kMostAncestors = 64;
constexpr const char* kProc = "/proc";

// A whole entry: its end has been read, too.
std::optional<std::string_view> whole_variable(std::string_view read, std::string_view name) {
  const auto value = variable_in(read, name);
  const bool ended = value && value->data() + value->size() != read.data() + read.size();
  return ended ? value : std::nullopt;
}

}  // namespace

std::optional<ProcessFacts> read_process(std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto text = read_proc_file(kProc, pid, "stat");
  const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
  if (!stat) return std::nullopt;
  ProcessFacts out;
  out.pid = pid;
  // The folder itself shows root for many.
  if (const auto status = read_proc_file(kProc, pid, "status")) out.uid = real_user(*status);
  if (const auto groups = read_proc_file(kProc, pid, "cgroup")) {
    if (out.uid == 0u) out.works_for = user_of(*groups);
    CgroupLabels labels = parse_cgroup(*groups);
    out.unit = std::move(labels.unit);
    out.container = std::move(labels.container);
  }
  out.started = stat->started;
  out.group = stat->group;
  out.session = stat->session;
  out.name = stat->name;
  return out;
}

std::optional<std::uint64_t> read_start(std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto text = read_proc_file(kProc, pid, "stat");
  const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
  return stat ? std::optional(stat->started) : std::nullopt;
}

// Not only in its session: torchrun starts each rank in one of its own.
std::vector<Ancestor> read_ancestors(const ProcessFacts& process) {
  constexpr std::int64_t kInit = 1;
  std::vector<Ancestor> out;
  for (std::int64_t pid = process.pid; pid > kInit && out.size() <= kMostAncestors;) {
    const auto text = read_proc_file(kProc, pid, "stat");
    const auto stat = text ? parse_proc_stat(*text) : std::nullopt;
    if (!stat) break;
    if (stat->session != process.session) {
      const auto status = read_proc_file(kProc, pid, "status");
      if (!status || real_user(*status) != process.uid) break;
    }
    if (pid != process.pid) out.emplace_back(pid, stat->started);
    if (stat->session == pid && stat->terminal != 0) break;
    pid = stat->parent;
  }
  return out;
}

std::string read_asked(std::int64_t pid) {
  constexpr std::string_view kName = "DERATE_DELTA";
  const auto text = read_proc_file(kProc, pid, "environ", [&](std::string_view read) {
    return whole_variable(read, kName).has_value();
  });
  return text ? std::string(whole_variable(*text, kName).value_or("")) : "";
}

Result<std::optional<std::uint32_t>> find_user(const std::string& name) {
  constexpr std::size_t kMost = 1 << 20;
  std::vector<char> text(1024);
  passwd entry{};
  passwd* found = nullptr;
  int wrong = 0;
  while (true) {
    wrong = ::getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
    if (wrong == ERANGE && text.size() < kMost)
      text.resize(text.size() * 2);
    else if (wrong != EINTR)
      break;
  }
  if (found != nullptr) return std::optional(found->pw_uid);
  // getpwnam(3): these, too, say that there is none.
  if (wrong == 0 || wrong == ENOENT || wrong == ESRCH || wrong == EBADF || wrong == EPERM)
    return std::optional<std::uint32_t>();
  return Error{Errc::io,
               fmt::format("user '{}' cannot be looked up: {}", name, std::strerror(wrong))};
}

KnownSenders::Known* KnownSenders::find_or_read(const Question& question, Instant now) {
  const auto known = known_.find(question.pid);
  if (known != known_.end()) {
    const ProcessFacts& facts = known->second.facts;
    const bool fresh = now - known->second.read <= kReadAgain;
    const bool same_user = question.uid == 0 || facts.uid == question.uid;
    if (fresh && same_user && readers_.start(question.pid) == facts.started) return &known->second;
    known_.erase(known);
  }
  auto facts = readers_.facts(question.pid);
  if (!facts) return nullptr;
  // One more pushes out the one that was not asked for longest.
  if (known_.size() >= kMost)
    known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
      return a.second.asked < b.second.asked;
    }));
  return &known_.emplace(question.pid, Known{*std::move(facts), false, now, now}).first->second;
}

std::optional<ProcessFacts> KnownSenders::look(const Question& question,
                                               const std::vector<std::int64_t>& sessions,
                                               Instant now) {
  Known* known = find_or_read(question, now);
  if (known == nullptr) return std::nullopt;
  known->asked = now;
  const bool wanted = question.ancestors || std::find(sessions.begin(), sessions.end(),
                                                      known->facts.session) != sessions.end();
  if (wanted && !known->with_ancestors) {
    known->facts.ancestors = readers_.ancestors(known->facts);
    known->with_ancestors = true;
  }
  return known->facts;
}

RulesOfSettings promise_rules(const Settings& settings) {
  RulesOfSettings out;
  out.rules.max_delta = Fraction(settings.max_delta);
  for (const JobSetting& job : settings.jobs) {
    JobRule rule;
    rule.name = job.name;
    rule.process = job.process;
    rule.uid = parse_uid(job.user);
    rule.unknown = !job.user.empty() && !rule.uid;
    if (rule.unknown) out.users.push_back({out.rules.rules.size(), job.user, job.where});
    const JobClass* named = find_job_class(job.job_class);
    rule.delta = Fraction(job.delta ? *job.delta : named != nullptr ? named->delta : 0);
    rule.every_phase = named != nullptr && named->every_phase;
    out.rules.rules.push_back(std::move(rule));
  }
  return out;
}

}  // namespace derate
