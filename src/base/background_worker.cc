#include "base/background_worker.h"

#include <pthread.h>

#include <csignal>
#include <thread>

#include "base/defer.h"

namespace derate {

// The new thread inherits the mask. If it cannot start (std::system_error), the caller's is
// restored.
void start_thread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const Defer signals_come_again([&] { pthread_sigmask(SIG_SETMASK, &before, nullptr); });
  std::thread(std::move(work)).detach();
}

BackgroundWorker::BackgroundWorker(Where where) {
  if (where == Where::at_once) return;
  queue_ = std::make_shared<Queue>();
  start_thread([queue = queue_] { work(*queue); });
}

BackgroundWorker::~BackgroundWorker() {
  if (queue_ == nullptr) return;
  const std::lock_guard lock(queue_->mutex);
  queue_->ended = true;
  queue_->news.notify_one();
}

// What was posted before the end is still done.
void BackgroundWorker::work(Queue& queue) {
  while (true) {
    std::unique_lock lock(queue.mutex);
    queue.news.wait(lock, [&] { return queue.ended || !queue.jobs.empty(); });
    if (queue.jobs.empty()) return;
    const auto job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    lock.unlock();
    job();
  }
}

void BackgroundWorker::put(std::function<void()> job) {
  if (queue_ == nullptr) return job();
  const std::lock_guard lock(queue_->mutex);
  queue_->jobs.push_back(std::move(job));
  queue_->news.notify_one();
}

}  // namespace derate
