// The one writer of a database: on a thread next to the loop's it runs the jobs that open, read,
// write and close the file, in the order in which they were posted.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "base/background_worker.h"
#include "base/defer.h"
#include "base/units.h"

namespace derate {

template <class Store>
class StoreWriter {
 public:
  // Who has posted so many jobs that are not done waits with the next: a disk that hangs costs no
  // more memory than these.
  static constexpr int kMostWaiting = 64;
  // The end waits so long for what is still to be written.
  static constexpr Duration kEndPatience = std::chrono::seconds(2);

  // `store` may have been used on this thread before.
  StoreWriter(std::unique_ptr<Store> store, BackgroundWorker::Where where)
      : shared_(std::make_shared<Shared>()), worker_(where) {
    shared_->store = std::move(store);
  }
  // Closes the file on its thread. One that takes longer than kEndPatience is not waited for.
  ~StoreWriter() {
    worker_.post([shared = shared_] { shared->store.reset(); }).wait_for(kEndPatience);
  }
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  // Runs job(Store&). What it refers to besides lives as long as the job itself.
  template <class F>
  auto post(F job) -> std::future<decltype(job(std::declval<Store&>()))> {
    ++shared_->waiting;
    return worker_.post([shared = shared_, job = std::move(job)]() mutable {
      const Defer done([&] { --shared->waiting; });
      return job(*shared->store);
    });
  }
  bool is_full() const { return shared_->waiting >= kMostWaiting; }

 private:
  struct Shared {
    std::unique_ptr<Store> store;  // for the thread alone
    std::atomic<int> waiting = 0;
  };

  std::shared_ptr<Shared> shared_;
  BackgroundWorker worker_;
};

}  // namespace derate
