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

// False: there is no place for that person.
bool LaunchReader::make_room(std::uint32_t person, Instant now) {
  const auto claim_of = [&](std::uint32_t of, Instant used) {
    return PlaceClaim{.person = of, .works = working_.contains(of), .used = used};
  };
  std::vector<PlaceClaim> held;
  for (const Process& each : processes_) held.push_back(claim_of(each.person, each.counted));
  const FairPlace place =
      fair_place(held, claim_of(person, now), {.all = kMostProcesses, .of_one = kMostOfAUser});
  if (place.instead_of)
    processes_.erase(processes_.begin() + static_cast<std::ptrdiff_t>(*place.instead_of));
  return place.granted;
}

// Without a handle, only the start time in /proc shows that the PID is another process's.
bool LaunchReader::has_ended(const Process& process, bool looks_up) const {
  if (is_known(process.handle)) return process.handle->has_ended();
  return looks_up && start_ && process.started != 0 && start_(process.pid) != process.started;
}

void LaunchReader::drop_ended(bool looks_up, LaunchNews& out) {
  std::erase_if(processes_, [&](const Process& process) {
    if (!has_ended(process, looks_up)) return false;
    out.ended.push_back(process);
    return true;
  });
}

void LaunchReader::add(LaunchPage page, PageOwner from, Instant now) {
  const auto known = std::find_if(processes_.begin(), processes_.end(), [&](const Process& one) {
    return is_same_process(one, from) && one.uid == from.uid;
  });
  if (known != processes_.end()) {
    if (known->page.inode() == page.inode()) return;
    processes_.erase(known);
  }
  if (derate::has_ended(from.handle) || !make_room(from.person, now)) return;
  processes_.push_back({std::move(from), std::move(page), {}, 0, now, 0});
}

void LaunchReader::read(Process& process, Instant now, std::optional<Instant> window_end,
                        LaunchNews& out) {
  const auto counts = process.page.read();
  if (!counts.ok()) {
    process.counted = Instant::min();  // of another version: this reading drops it
    return;
  }
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
      out.rates.push_back({process, gpu.uuid, *std::move(launched)});
    auto progress = count.add(now, gpu.kernels);
    if (!progress) continue;
    progress->pid = process.pid;
    progress->uid = process.uid.value_or(0);
    progress->started = process.started;
    progress->gpu = gpu.uuid;
    progress->only_gpu = counts->size() == 1;
    out.progress.push_back(*std::move(progress));
  }
}

std::map<std::uint32_t, std::deque<LaunchReader::Process*>> LaunchReader::by_person() {
  std::map<std::uint32_t, std::deque<Process*>> out;
  for (Process& process : processes_) out[process.person].push_back(&process);
  for (auto& [person, processes] : out)
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
  drop_ended(window_end.has_value(), out);
  auto waiting = by_person();
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
    return process.reading == readings_ && process.counted < now - kSilent;
  });
  return out;
}

LaunchTracker::LaunchTracker(std::function<Instant()> clock, LaunchReader::StartOf start,
                             BackgroundWorker::Where where)
    : clock_(std::move(clock)),
      start_(std::move(start)),
      reader_(std::make_shared<LaunchReader>(start_)),
      aside_(where) {}

void LaunchTracker::take(LaunchPage page, PageOwner from) {
  any_ = true;
  const auto claim_of = [&](std::uint32_t person) {
    return PlaceClaim{.person = person, .works = working_.contains(person)};
  };
  std::vector<PlaceClaim> held;
  for (const Arrived& each : arrived_) held.push_back(claim_of(each.from.person));
  const FairPlace place =
      fair_place(held, claim_of(from.person), {.all = kMostWaiting, .of_one = kMostWaitingOfAUser});
  if (place.instead_of)
    arrived_.erase(arrived_.begin() + static_cast<std::ptrdiff_t>(*place.instead_of));
  if (place.granted) arrived_.push_back({std::move(page), std::move(from)});
}

// If the handle shows that the process lives after the start was read, the start is that process's.
void LaunchTracker::add(LaunchReader& reader, const LaunchReader::StartOf& start, Arrived arrived,
                        Instant now) {
  const auto started = start(arrived.from.pid);
  if (!started) return;
  arrived.from.started = *started;
  reader.add(std::move(arrived.page), std::move(arrived.from), now);
}

LaunchNews LaunchTracker::step(Instant now) {
  LaunchNews out;
  if (is_ready(reading_)) out = reading_.get();
  if (!any_ || reading_.valid() || now < next_) return out;
  next_ = now + kReadEvery;
  auto arrived = std::make_shared<std::vector<Arrived>>(std::exchange(arrived_, {}));
  reading_ =
      aside_.post([reader = reader_, clock = clock_, start = start_, working = working_, arrived] {
        reader->set_working(working);
        for (Arrived& each : *arrived) add(*reader, start, std::move(each), clock());
        return reader->read(clock);
      });
  return out;
}

}  // namespace derate
