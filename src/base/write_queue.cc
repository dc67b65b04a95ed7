#include "base/write_queue.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "base/background_worker.h"

namespace derate {

// Shared with the thread, which may outlive the queue if a disk hangs.
struct WriteQueue::Shared {
  std::mutex mutex;
  std::condition_variable done;
  std::size_t waiting = 0;
  std::optional<Error> failure;  // of the newest write that was done
};

struct WriteQueue::Thread {
  BackgroundWorker worker{BackgroundWorker::Where::on_a_thread};
};

WriteQueue::WriteQueue(std::string path, std::size_t most)
    : path_(std::move(path)),
      most_(most),
      shared_(std::make_shared<Shared>()),
      thread_(std::make_unique<Thread>()) {}

WriteQueue::~WriteQueue() {
  std::unique_lock lock(shared_->mutex);
  shared_->done.wait_for(lock, kEndPatience, [&] { return shared_->waiting == 0; });
}

Result<void> WriteQueue::put(std::function<Result<void>()> write) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (shared_->waiting >= most_)
      return Error{Errc::io, "the disk of '" + path_ + "' does not answer: entries are left out"};
    ++shared_->waiting;
  }
  thread_->worker.post([all = shared_, write = std::move(write)] {
    auto written = write();
    const std::lock_guard lock(all->mutex);
    all->failure.reset();
    if (!written.ok()) all->failure = std::move(written).error();
    if (--all->waiting == 0) all->done.notify_all();
  });
  const std::lock_guard lock(shared_->mutex);
  if (shared_->failure) return *shared_->failure;
  return {};
}

}  // namespace derate
