#include "lab/run_plan.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>

namespace derate {
namespace {

struct Finished {
  std::size_t index;
  Result<std::optional<SessionRecord>> record;
};

// Sessions from `todo`, on several threads; the results wait for the one thread that stores them.
class Pool {
 public:
  Pool(const SessionRunner& runner, const std::vector<std::size_t>& todo, unsigned threads)
      : runner_(runner), todo_(todo) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() { stop(); }

  void stop() {
    stopped_ = true;
    next_ = todo_.size();
  }
  std::vector<Finished> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(finished_, {});
  }
  // In this order: a thread that has taken the last one was busy before it took it.
  bool idle() const { return next_ >= todo_.size() && busy_ == 0; }
  std::size_t jobs_done() const { return jobs_done_; }

 private:
  void work() {
    const SessionHooks hooks{[this] { ++jobs_done_; }, [this] { return stopped_.load(); }};
    while (true) {
      ++busy_;
      const std::size_t at = next_++;
      if (at >= todo_.size()) break;
      auto record = runner_(todo_[at], hooks);
      {
        const std::lock_guard lock(mutex_);
        finished_.push_back({todo_[at], std::move(record)});
      }
      --busy_;
    }
    --busy_;
  }

  const SessionRunner& runner_;
  const std::vector<std::size_t>& todo_;
  std::atomic<std::size_t> next_{0}, jobs_done_{0};
  std::atomic<int> busy_{0};
  std::atomic<bool> stopped_{false};
  std::mutex mutex_;
  std::vector<Finished> finished_;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

std::size_t jobs_in(const Plan& plan, const std::vector<std::size_t>& sessions) {
  std::size_t out = 0;
  for (const std::size_t index : sessions) out += session_stage(plan, index).apps.size();
  return out * static_cast<std::size_t>(plan.experiment.in_a_row);
}

std::vector<std::size_t> all_of(const Plan& plan) {
  std::vector<std::size_t> out(plan.session_count());
  std::iota(out.begin(), out.end(), std::size_t{0});
  return out;
}

std::vector<std::size_t> not_done(const Plan& plan, std::vector<SessionKey> done) {
  std::sort(done.begin(), done.end());
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < plan.session_count(); ++i)
    if (!std::binary_search(done.begin(), done.end(), session_key(plan, i))) out.push_back(i);
  return out;
}

}  // namespace

SessionRunner in_virtual_time(const Plan& plan) {
  return [&plan](std::size_t index,
                 const SessionHooks& hooks) -> Result<std::optional<SessionRecord>> {
    SessionRecord record = TRY(run_session(session_spec(plan, index)));
    for (std::size_t i = 0; i < record.jobs.size(); ++i) hooks.job_done();
    return std::optional(std::move(record));
  };
}

Result<RunOutcome> run_plan(const Plan& plan, const SessionRunner& runner, LabStore& store,
                            Clock& clock, unsigned threads, const RunHooks& hooks) {
  const Instant begin = clock.now();
  RunOutcome out;
  out.all = plan.session_count();
  const auto todo = not_done(plan, TRY(store.sessions()));
  out.already_there = out.all - todo.size();
  const std::size_t jobs = jobs_in(plan, all_of(plan)), jobs_there = jobs - jobs_in(plan, todo);
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  Pool pool(runner, todo, threads);
  while (true) {
    const bool last = pool.idle();  // before the results are taken: none comes after
    for (Finished& one : pool.take()) {
      const auto record = TRY(std::move(one.record));
      if (!record) continue;
      TRY(store.add(session_key(plan, one.index), record->jobs));
      ++out.ran;
      out.simulated += record->simulated;
      for (const JobRecord& job : record->jobs) out.failed_jobs += job.error.empty() ? 0 : 1;
    }
    if (hooks.progress) hooks.progress(jobs_there + pool.jobs_done(), jobs);
    if (last) break;
    if (hooks.stop && hooks.stop()) pool.stop();
    clock.sleep_until(clock.now() + std::chrono::milliseconds(20));
  }
  out.elapsed = clock.now() - begin;
  return out;
}

}  // namespace derate
