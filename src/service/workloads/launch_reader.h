// Reads what processes launch and reports how far each is (signal/launches.h). Reading a page may
// wait for memory that was swapped out, and the process may choose how long its evaluation takes.
// So LaunchReader runs on another thread than the loop, and LaunchTracker on the loop's.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/background_worker.h"
#include "base/process_handle.h"
#include "base/units.h"
#include "core/fair_place.h"
#include "core/process_id.h"
#include "integ/launch_page.h"
#include "signal/launches.h"

namespace derate {

// What a process launches on a GPU, over the last seconds: windows of all processes end together.
struct ProcessLaunches : ProcessId {
  std::string gpu;
  LaunchRate rate;
};

struct LaunchNews {
  std::vector<LaunchProgress> progress;
  std::vector<ProcessLaunches> rates;
  std::vector<ProcessId> ended;  // processes that have ended and whose page was dropped
};

// A process that has handed over a page. The page is of use only while that process lives, even if
// another process has the memory and goes on counting there.
struct PageOwner : ProcessId {
  SharedHandle handle = {};
  std::uint32_t person = 0;  // the person whose share of the places it takes
};

class LaunchReader {
 public:
  static constexpr Duration kRateOver = std::chrono::seconds(2);
  static constexpr std::size_t kMostProcesses = 256, kMostOfAUser = 64;
  static constexpr std::size_t kMostGpus = 16;  // of a process; others of its GPUs are not read
  // Time that one reading takes. Users share it: the next page is one of the user whose pages have
  // taken the least of it. What it did not suffice for is read first the next time.
  static constexpr Duration kReadFor = std::chrono::milliseconds(50);
  // A page on which nothing was counted for so long is closed: its process is gone, or sends it
  // again when it launches (progress/hand_over.c, each minute).
  static constexpr Duration kSilent = std::chrono::minutes(3);

  // `start` returns the start of the process that has a PID now, in clock ticks since the boot.
  // Processes without a handle are looked up with each window.
  using StartOf = std::function<std::optional<std::uint64_t>(std::int64_t pid)>;

  LaunchReader() = default;
  explicit LaunchReader(StartOf start) : start_(std::move(start)) {}

  // If a process sends the same page again, counting goes on. Another page replaces the first. A
  // process that has ended gets no place.
  void add(LaunchPage page, PageOwner from, Instant now);
  // The people who have a process on a GPU: their pages are read first.
  void set_working(std::set<std::uint32_t> people) { working_ = std::move(people); }
  // Of those whose window has ended; of as many processes as kReadFor lasts for.
  LaunchNews read(const std::function<Instant()>& clock);
  std::size_t processes() const { return processes_.size(); }

 private:
  struct Process : PageOwner {
    LaunchPage page;
    std::vector<std::pair<std::string, LaunchCount>> gpus;  // by UUID
    std::uint64_t launches = 0;                             // of all GPUs, when last read
    Instant counted{};                                      // when they last grew
    std::uint64_t reading = 0;                              // in which it was read last
  };
  bool make_room(std::uint32_t person, Instant now);
  bool has_ended(const Process& process, bool looks_up) const;
  void drop_ended(bool looks_up, LaunchNews& out);
  // The processes of each person, in the order of their last reading, the oldest first.
  std::map<std::uint32_t, std::deque<Process*>> by_person();
  void forget_windows();
  // `window_end`: of all rates; empty, their windows go on.
  void read(Process& process, Instant now, std::optional<Instant> window_end, LaunchNews& out);

  StartOf start_;  // empty: nothing is looked up
  std::set<std::uint32_t> working_;
  std::vector<Process> processes_;
  Instant window_ends_{};
  std::uint64_t readings_ = 0;
};

class LaunchTracker {
 public:
  // A window ends with the first reading after LaunchPhases::kShortest.
  static constexpr Duration kReadEvery = std::chrono::milliseconds(100);
  // Pages that wait to be opened for reading; more are dropped, and come again.
  static constexpr std::size_t kMostWaiting = 256, kMostWaitingOfAUser = 64;

  // `clock` and `start` are called on the reading thread, which may outlive this.
  LaunchTracker(std::function<Instant()> clock, LaunchReader::StartOf start,
                BackgroundWorker::Where where);

  // The reading thread looks up the start of the page's process.
  void take(LaunchPage page, PageOwner from);
  void set_working(std::set<std::uint32_t> people) { working_ = std::move(people); }
  // What has become known since; begins the next reading when that is due. Never waits.
  LaunchNews step(Instant now);

 private:
  struct Arrived {
    LaunchPage page;
    PageOwner from;
  };
  static void add(LaunchReader& reader, const LaunchReader::StartOf& start, Arrived arrived,
                  Instant now);

  std::function<Instant()> clock_;
  LaunchReader::StartOf start_;
  std::shared_ptr<LaunchReader> reader_;  // used on the reading thread
  std::set<std::uint32_t> working_;
  std::vector<Arrived> arrived_;
  bool any_ = false;  // a page was ever handed over
  Instant next_{};
  std::future<LaunchNews> reading_;
  BackgroundWorker aside_;
};

}  // namespace derate
