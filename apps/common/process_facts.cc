#include "process_facts.h"

#include <fmt/format.h>
#include <pwd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/text.h"
#include "core/job_class.h"

namespace derate::cli {
namespace {

constexpr int kMostAncestors = 64;
constexpr std::size_t kLongestEnvironment = 1 << 20;

// The beginning of a file of /proc, which has no size of its own; empty when it cannot be read.
std::string beginning_of(const std::string& path, std::size_t longest) {
  std::ifstream file(path, std::ios::binary);
  std::string out(longest, '\0');
  file.read(out.data(), static_cast<std::streamsize>(longest));
  out.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, file.gcount())));
  return out;
}

struct Stat {
  std::string name;
  std::int64_t parent = 0, group = 0, session = 0;
  std::uint64_t started = 0;
};

// proc(5): PID (NAME) STATE PPID PGRP SESSION ..., the 22nd being the start; a name may have any
// character.
std::optional<Stat> read_stat(std::int64_t pid) {
  const std::string text = beginning_of(fmt::format("/proc/{}/stat", pid), 4096);
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return std::nullopt;
  const auto fields = split(std::string_view(text).substr(std::min(close + 2, text.size())), ' ');
  constexpr std::size_t kParent = 1, kGroup = 2, kSession = 3, kStarted = 19;
  if (fields.size() <= kStarted) return std::nullopt;
  const auto number = [&](std::size_t at) { return parse_integer(fields[at]).value_or(0); };
  return Stat{text.substr(open + 1, close - open - 1), number(kParent), number(kGroup),
              number(kSession), static_cast<std::uint64_t>(number(kStarted))};
}

// Of "Uid:\tREAL\tEFFECTIVE..." in its status; the folder itself shows root for many.
std::optional<std::uint32_t> real_user(std::int64_t pid) {
  const std::string text = beginning_of(fmt::format("/proc/{}/status", pid), 4096);
  const auto at = text.find("\nUid:\t");
  if (at == std::string::npos) return std::nullopt;
  const auto begin = at + 6;
  const auto uid = parse_integer(
      std::string_view(text).substr(begin, text.find_first_of("\t\n", begin) - begin));
  if (!uid) return std::nullopt;
  return static_cast<std::uint32_t>(*uid);
}

std::string asked_of(std::int64_t pid) {
  constexpr std::string_view kName = "DERATE_DELTA=";
  const std::string text = beginning_of(fmt::format("/proc/{}/environ", pid), kLongestEnvironment);
  for (const std::string_view entry : split(text, '\0'))
    if (entry.starts_with(kName)) return std::string(entry.substr(kName.size()));
  return "";
}

}  // namespace

std::optional<ProcessFacts> read_process(std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto stat = read_stat(pid);
  if (!stat) return std::nullopt;
  ProcessFacts out;
  out.pid = pid;
  out.uid = real_user(pid);
  out.started = stat->started;
  out.group = stat->group;
  out.session = stat->session;
  out.name = stat->name;
  out.asked = asked_of(pid);
  std::int64_t parent = stat->parent;
  for (int i = 0; i < kMostAncestors && parent > 0; ++i) {
    const auto above = read_stat(parent);
    if (!above || above->session != stat->session) break;
    out.ancestors.push_back(parent);
    parent = above->parent;
  }
  return out;
}

PromiseRules promise_rules(const Settings& settings,
                           const std::function<void(const std::string& text)>& tell) {
  PromiseRules out;
  out.max_delta = Fraction(settings.max_delta);
  for (const JobSetting& job : settings.jobs) {
    JobRule rule;
    rule.name = job.name;
    rule.process = job.process;
    if (!job.user.empty()) {
      const auto number = parse_integer(job.user);
      const passwd* user = number ? nullptr : ::getpwnam(job.user.c_str());
      rule.nobody = !number && user == nullptr;
      if (number) rule.uid = static_cast<std::uint32_t>(*number);
      if (user != nullptr) rule.uid = user->pw_uid;
      if (rule.nobody)
        tell(fmt::format("{}: this machine has no user '{}': the rule holds for nobody", job.where,
                         job.user));
    }
    const JobClass* named = find_job_class(job.job_class);
    rule.delta = Fraction(job.delta ? *job.delta : named != nullptr ? named->delta : 0);
    rule.every_phase = named != nullptr && named->every_phase;
    out.rules.push_back(std::move(rule));
  }
  return out;
}

}  // namespace derate::cli
