// The people behind user ids, as limits count them: ids of /etc/subuid are their owner's. Changes
// of that file are read on another thread.
#pragma once

#include <memory>

#include "base/background_worker.h"
#include "base/clock.h"
#include "service/transport/caller_shares.h"
#include "service/transport/subordinate_ids.h"

namespace derate {

class People {
 public:
  // Reads the file, which is waited for this once.
  People() { ids_->renew(); }

  // For any thread.
  PersonOf person() const {
    return [ids = ids_](uid_t uid) { return ids->person_of(uid); };
  }
  // To be called often, by one thread: looks for changes each kEvery. Never waits.
  void look(Instant now) {
    if (now < next_) return;
    next_ = now + kEvery;
    reader_.post([ids = ids_] { ids->renew(); });
  }

 private:
  static constexpr Duration kEvery = std::chrono::seconds(10);

  std::shared_ptr<SubordinateIds> ids_ = std::make_shared<SubordinateIds>();
  BackgroundWorker reader_{BackgroundWorker::Where::on_a_thread};
  Instant next_ = Instant::min();
};

}  // namespace derate
