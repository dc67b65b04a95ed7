#include "lab/run_plan.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

namespace derate {
namespace {

struct Finished {
  std::size_t index;
  Result<SessionRecord> record;
};

// Sessions from `todo`, on several threads; the results wait for the one thread that stores them.
class Pool {
 public:
  Pool(const Plan& plan, const std::vector<std::size_t>& todo, unsigned threads)
      : plan_(plan), todo_(todo) {
    for (unsigned i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() { stop(); }

  void stop() { next_ = todo_.size(); }
  std::vector<Finished> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(finished_, {});
  }
  // In this order: who has taken the last one was busy before he took it.
  bool idle() const { return next_ >= todo_.size() && busy_ == 0; }

 private:
  void work() {
    while (true) {
      ++busy_;
      const std::size_t at = next_++;
      if (at >= todo_.size()) break;
      auto record = run_session(session_spec(plan_, todo_[at]));
      {
        const std::lock_guard lock(mutex_);
        finished_.push_back({todo_[at], std::move(record)});
      }
      --busy_;
    }
    --busy_;
  }

  const Plan& plan_;
  const std::vector<std::size_t>& todo_;
  std::atomic<std::size_t> next_{0};
  std::atomic<int> busy_{0};
  std::mutex mutex_;
  std::vector<Finished> finished_;
  std::vector<std::jthread> threads_;  // last: they use the rest
};

std::vector<std::size_t> not_done(const Plan& plan, std::vector<SessionKey> done) {
  std::sort(done.begin(), done.end());
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < plan.session_count(); ++i)
    if (!std::binary_search(done.begin(), done.end(), session_key(plan, i))) out.push_back(i);
  return out;
}

}  // namespace

Result<RunOutcome> run_plan(const Plan& plan, LabStore& store, Clock& clock, unsigned threads,
                            const RunHooks& hooks) {
  const Instant begin = clock.now();
  RunOutcome out;
  out.all = plan.session_count();
  const auto todo = not_done(plan, TRY(store.sessions()));
  out.already_there = out.all - todo.size();
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  Pool pool(plan, todo, threads);
  while (true) {
    const bool last = pool.idle();  // before the results are taken: none comes after
    for (Finished& one : pool.take()) {
      const SessionRecord record = TRY(std::move(one.record));
      TRY(store.add(session_key(plan, one.index), record.jobs));
      ++out.ran;
      out.simulated += record.simulated;
      for (const JobRecord& job : record.jobs) out.failed_jobs += job.error.empty() ? 0 : 1;
    }
    if (hooks.progress) hooks.progress(out.already_there + out.ran, out.all);
    if (last) break;
    if (hooks.stop && hooks.stop()) pool.stop();
    clock.sleep_until(clock.now() + std::chrono::milliseconds(20));
  }
  out.elapsed = clock.now() - begin;
  return out;
}

}  // namespace derate
