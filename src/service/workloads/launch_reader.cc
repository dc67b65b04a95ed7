#include "service/workloads/launch_reader.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

std::uint64_t launches_of(const std::vector<GpuLaunches>& gpus) {
  std::uint64_t out = 0;
  for (const GpuLaunches& gpu : gpus)
    for (const auto& [id, count] : gpu.kernels) out += count;
  return out;
}

}  // namespace

// The user's own process that has counted nothing for the longest time goes first, then anybody's.
void LaunchReader::make_room(std::uint32_t uid) {
  const auto mine = [&](const Process& one) { return one.uid == uid; };
  const bool only_mine = static_cast<std::size_t>(std::count_if(
                             processes_.begin(), processes_.end(), mine)) >= kMostOfAUser;
  if (!only_mine && processes_.size() < kMostProcesses) return;
  auto out = processes_.end();
  for (auto at = processes_.begin(); at != processes_.end(); ++at)
    if ((!only_mine || mine(*at)) && (out == processes_.end() || at->counted < out->counted))
      out = at;
  processes_.erase(out);
}

void LaunchReader::add(LaunchPage page, std::int64_t pid, std::uint32_t uid, Instant now) {
  const auto known = std::find_if(processes_.begin(), processes_.end(), [&](const Process& one) {
    return one.pid == pid && one.uid == uid;
  });
  if (known != processes_.end()) {
    if (known->page.inode() == page.inode()) return;
    processes_.erase(known);
  }
  make_room(uid);
  processes_.push_back({.pid = pid, .uid = uid, .page = std::move(page), .counted = now});
}

void LaunchReader::read(Process& process, Instant now, std::optional<Instant> window_end,
                        LaunchNews& out) {
  const auto counts = process.page.read();
  if (!counts.ok()) return;
  const std::uint64_t launches = launches_of(*counts);
  if (launches != process.launches) process.counted = now;
  process.launches = launches;
  for (const GpuLaunches& gpu : *counts) {
    auto at = std::find_if(process.gpus.begin(), process.gpus.end(),
                           [&](const auto& each) { return each.first == gpu.uuid; });
    if (at == process.gpus.end()) {
      if (process.gpus.size() >= kMostGpus) continue;
      at = process.gpus.insert(at, {gpu.uuid, {}});
    }
    LaunchCount& count = at->second;
    if (auto launched = window_end ? count.end_window(*window_end, gpu) : std::nullopt)
      out.rates.push_back({process.pid, gpu.uuid, *std::move(launched)});
    auto progress = count.add(now, gpu.kernels);
    if (!progress) continue;
    progress->pid = process.pid;
    progress->uid = process.uid;
    progress->gpu = gpu.uuid;
    progress->only_gpu = counts->size() == 1;
    out.progress.push_back(*std::move(progress));
  }
}

std::map<std::uint32_t, std::deque<LaunchReader::Process*>> LaunchReader::by_user() {
  std::map<std::uint32_t, std::deque<Process*>> out;
  for (Process& process : processes_) out[process.uid].push_back(&process);
  for (auto& [uid, processes] : out)
    std::stable_sort(processes.begin(), processes.end(),
                     [](const Process* a, const Process* b) { return a->reading < b->reading; });
  return out;
}

// Windows of all processes end together: those that were not read then begin theirs anew.
void LaunchReader::forget_windows() {
  for (Process& process : processes_)
    if (process.reading != readings_)
      for (auto& [uuid, count] : process.gpus) count.forget_window();
}

LaunchNews LaunchReader::read(const std::function<Instant()>& clock) {
  LaunchNews out;
  const Instant begun = clock();
  std::optional<Instant> window_end;
  if (begun >= window_ends_) {
    window_end = begun;
    window_ends_ = begun + kRateOver;
  }
  ++readings_;
  auto waiting = by_user();
  std::map<std::uint32_t, Duration> spent;
  Instant now = begun;
  while (!waiting.empty() && now - begun < kReadFor) {
    const auto next =
        std::min_element(waiting.begin(), waiting.end(), [&](const auto& a, const auto& b) {
          return std::pair(spent[a.first], a.second.front()->reading) <
                 std::pair(spent[b.first], b.second.front()->reading);
        });
    Process& process = *next->second.front();
    read(process, now, window_end, out);
    process.reading = readings_;
    const Instant before = std::exchange(now, clock());
    spent[next->first] += now - before;
    next->second.pop_front();
    if (next->second.empty()) waiting.erase(next);
  }
  if (window_end) forget_windows();
  std::erase_if(processes_, [&](const Process& process) {
    return process.reading == readings_ && now - process.counted > kSilent;
  });
  return out;
}

LaunchTracker::LaunchTracker(std::function<Instant()> clock, BackgroundWorker::Where where)
    : clock_(std::move(clock)), aside_(where) {}

void LaunchTracker::take(LaunchPage page, std::int64_t pid, std::uint32_t uid) {
  any_ = true;
  const auto of_user = std::count_if(arrived_.begin(), arrived_.end(),
                                     [&](const Arrived& each) { return each.uid == uid; });
  if (arrived_.size() < kMostWaiting && std::size_t(of_user) < kMostWaitingOfAUser)
    arrived_.push_back({std::move(page), pid, uid});
}

LaunchNews LaunchTracker::step(Instant now) {
  LaunchNews out;
  if (is_ready(reading_)) out = reading_.get();
  if (!any_ || reading_.valid() || now < next_) return out;
  next_ = now + kReadEvery;
  auto arrived = std::make_shared<std::vector<Arrived>>(std::exchange(arrived_, {}));
  reading_ = aside_.post([reader = reader_, clock = clock_, arrived] {
    for (Arrived& each : *arrived) reader->add(std::move(each.page), each.pid, each.uid, clock());
    return reader->read(clock);
  });
  return out;
}

}  // namespace derate
