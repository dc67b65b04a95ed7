// A worker thread next to the loop: does jobs that may block, in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>

#include "base/units.h"

namespace derate {

// Nobody waits for it: a call that hangs ends with the process. Signals are for the main thread.
void start_thread(std::function<void()> work);

class BackgroundWorker {
 public:
  // at_once: on the calling thread, for loops on virtual time.
  enum class Where { on_a_thread, at_once };

  explicit BackgroundWorker(Where where);
  // Nobody waits for a job that hangs: the thread ends after it, or with the process.
  ~BackgroundWorker();
  BackgroundWorker(const BackgroundWorker&) = delete;
  BackgroundWorker& operator=(const BackgroundWorker&) = delete;

  // What `job` refers to lives as long as the job itself: it may outlive the caller.
  template <class F>
  auto post(F job) -> std::future<decltype(job())> {
    auto task = std::make_shared<std::packaged_task<decltype(job())()>>(std::move(job));
    auto out = task->get_future();
    put([task] { (*task)(); });
    return out;
  }

 private:
  struct Queue {
    std::mutex mutex;
    std::condition_variable news;
    std::deque<std::function<void()>> jobs;
    bool ended = false;
  };
  static void work(Queue& queue);
  void put(std::function<void()> job);

  std::shared_ptr<Queue> queue_;  // null: at once
};

template <class T>
bool is_ready(const std::future<T>& outcome) {
  return outcome.valid() && outcome.wait_for(Duration{}) == std::future_status::ready;
}

}  // namespace derate
