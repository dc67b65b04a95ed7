#include "govern/group/step_detector.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace derate {
namespace {

using OfJob = std::span<const StepEvidence* const>;

const ProcessFacts& process_of(const StepEvidence& evidence) { return evidence.processes[0]; }

bool is_one_users(const StepEvidence& a, const StepEvidence& b) {
  return process_of(a).uid && process_of(a).uid == process_of(b).uid;
}

// As far as that goes without collectives: who started them meant them to be one.
bool is_close(const StepEvidence& a, const StepEvidence& b) {
  const ProcessFacts &one = process_of(a), &other = process_of(b);
  const bool one_group =
      one.session != 0 && one.session == other.session && one.group == other.group;
  const bool one_batch_job = !a.batch_job.empty() && a.batch_job == b.batch_job;
  return is_one_users(a, b) && (one.pid == other.pid || one_group || one_batch_job);
}

bool are_one(const Ancestor& a, const Ancestor& b) {
  return is_process(a, {.pid = b.pid, .uid = {}, .started = b.started});
}

bool is_or_is_below(const ProcessFacts& process, const Ancestor& other) {
  const auto& above = process.ancestors;
  return is_process(other, process) ||
         std::any_of(above.begin(), above.end(),
                     [&](const Ancestor& each) { return are_one(each, other); });
}

// The nearest process, itself or above it, that is also above another GPU's process: torchrun for
// its ranks, a script for its children. PID 0: none.
Ancestor launcher_of(const StepEvidence& evidence, OfJob all) {
  const auto is_shared = [&](const Ancestor& above) {
    return std::any_of(all.begin(), all.end(), [&](const StepEvidence* other) {
      return other != &evidence && is_one_users(evidence, *other) &&
             is_or_is_below(process_of(*other), above);
    });
  };
  const ProcessFacts& process = process_of(evidence);
  if (is_shared({process.pid, process.started})) return {process.pid, process.started};
  const auto found = std::find_if(process.ancestors.begin(), process.ancestors.end(), is_shared);
  return found == process.ancestors.end() ? Ancestor() : *found;
}

using Jobs = std::vector<std::vector<const StepEvidence*>>;

// Those that `is_one` of another of them, together.
template <class IsOne>
Jobs grouped(OfJob all, IsOne is_one) {
  Jobs out;
  for (const StepEvidence* each : all) {
    const auto found = std::find_if(out.begin(), out.end(), [&](const auto& job) {
      return std::any_of(job.begin(), job.end(),
                         [&](const StepEvidence* other) { return is_one(*each, *other); });
    });
    if (found == out.end())
      out.push_back({each});
    else
      found->push_back(each);
  }
  return out;
}

// Those with one process each, by job; alone ones left out.
Jobs by_job(std::span<const StepEvidence> seen) {
  std::vector<const StepEvidence*> all;
  for (const StepEvidence& each : seen)
    if (each.processes.size() == 1 && process_of(each).pid != 0) all.push_back(&each);
  std::map<const StepEvidence*, Ancestor> launchers;
  for (const StepEvidence* each : all) launchers[each] = launcher_of(*each, all);
  Jobs out = grouped(all, [&](const StepEvidence& a, const StepEvidence& b) {
    return launchers[&a].pid != 0 && are_one(launchers[&a], launchers[&b]) && is_one_users(a, b);
  });
  const auto is_alone = [](const auto& job) { return job.size() < 2; };
  std::vector<const StepEvidence*> rest;
  for (const auto& job : out)
    if (is_alone(job)) rest.push_back(job[0]);
  for (auto& job : grouped(rest, is_close)) out.push_back(std::move(job));
  std::erase_if(out, is_alone);
  return out;
}

bool busy_alike(OfJob job, const PaceMeans& means) {
  double least = 1, most = 0;
  for (const StepEvidence* each : job) {
    if (each->processes[0].pid != job[0]->processes[0].pid) return false;
    const PaceMean* mean = means.find(each->gpu);
    if (mean == nullptr || mean->busy <= 0) return false;
    least = std::min(least, mean->busy);
    most = std::max(most, mean->busy);
  }
  return most - least <= StepDetector::kBusyDiffers;
}

std::size_t known_launches(OfJob job) {
  return static_cast<std::size_t>(std::count_if(
      job.begin(), job.end(), [](const StepEvidence* each) { return each->launches.has_value(); }));
}

std::vector<PaceReading> readings_of(OfJob job) {
  std::vector<PaceReading> out;
  for (const StepEvidence* each : job) out.push_back({each->gpu, &each->estimate});
  return out;
}

bool one_clock_is_asked(std::span<const PaceReading> readings) {
  return std::all_of(readings.begin(), readings.end(), [&](const PaceReading& each) {
    return each.estimate->requested_clock == readings.front().estimate->requested_clock;
  });
}

}  // namespace

bool StepDetector::is_alike(Job& job, OfJob of_job) {
  const std::size_t known = known_launches(of_job);
  if (known == 0) return busy_alike(of_job, job.means);
  if (known < of_job.size()) return false;
  std::vector<const LaunchRate*> rates;
  for (const StepEvidence* each : of_job) rates.push_back(&*each->launches);
  job.verdict = job.windows.add(rates, job.number != 0).value_or(job.verdict);
  if (job.verdict == LaunchWindows::Verdict::same_rates)
    return std::all_of(of_job.begin(), of_job.end(),
                       [&](const StepEvidence* each) { return is_close(*each, *of_job[0]); });
  return job.verdict == LaunchWindows::Verdict::exchange;
}

void StepDetector::judge(Job& job, Instant now, OfJob of_job) {
  add(job.means, readings_of(of_job));
  if (job.number != 0) add(job.of_unit, readings_of(of_job));
  const bool alike = is_alike(job, of_job);
  auto& since = alike ? job.alike_since : job.unlike_since;
  (alike ? job.unlike_since : job.alike_since).reset();
  if (!since) since = now;
  const Duration join = known_launches(of_job) == 0 ? kJoinByActivityAfter
                        : job.verdict == LaunchWindows::Verdict::exchange
                            ? kJoinAfter
                            : Duration{};  // it is of long windows already
  if (alike && job.number == 0 && now - *since >= join) {
    job.number = ++last_number_;
    job.of_unit = {};
  }
  if (!alike && now - *since >= kLeaveAfter) job.number = 0;
}

StepLook StepDetector::update(Instant now, std::span<const StepEvidence> seen) {
  StepLook out;
  std::vector<Job> jobs;
  for (const auto& of_job : by_job(seen)) {
    std::vector<Place> places;
    for (const StepEvidence* each : of_job) places.push_back({each->gpu, process_of(*each)});
    const auto known = std::find_if(jobs_.begin(), jobs_.end(),
                                    [&](const Job& job) { return job.places == places; });
    Job& job = jobs.emplace_back(known != jobs_.end() ? std::move(*known) : Job{.places = places});
    judge(job, now, of_job);
    if (job.number == 0) {
      for (const Place& place : job.places) out.may_wait.push_back(place.gpu);
      continue;
    }
    StepGroup& group = out.in_step.emplace_back();
    group.number = job.number;
    for (const Place& place : job.places) group.gpus.push_back(place.gpu);
    group.straggler = find_straggler(job.of_unit, readings_of(of_job));
  }
  jobs_ = std::move(jobs);
  return out;
}

std::optional<Straggler> find_straggler(const PaceMeans& means,
                                        std::span<const PaceReading> readings) {
  if (means.of.size() < 2 || means.age < kPaceMemory || !one_clock_is_asked(readings))
    return std::nullopt;
  std::vector<PaceMean> by_clock = means.of, by_busy = means.of;
  std::sort(by_clock.begin(), by_clock.end(),
            [](const PaceMean& a, const PaceMean& b) { return a.clock_mhz < b.clock_mhz; });
  std::sort(by_busy.begin(), by_busy.end(),
            [](const PaceMean& a, const PaceMean& b) { return a.busy > b.busy; });
  if (by_clock[0].clock_mhz < by_clock[1].clock_mhz * (1 - kLower))
    return Straggler{by_clock[0].gpu,
                     fmt::format("its clock is {:.0f} MHz where the others have {:.0f} and more",
                                 by_clock[0].clock_mhz, by_clock[1].clock_mhz)};
  if (by_busy[1].busy < by_busy[0].busy * (1 - kBusier))
    return Straggler{by_busy[0].gpu,
                     fmt::format("busy for {:.0f} % of the time, the others for {:.0f} % and less",
                                 100 * by_busy[0].busy, 100 * by_busy[1].busy)};
  return std::nullopt;
}

}  // namespace derate
