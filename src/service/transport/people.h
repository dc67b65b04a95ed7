// The people behind user ids, as limits count them: an id of /etc/subuid counts as its owner.
// Another thread reads changes of that file.
#pragma once

#include <memory>

#include "base/background_worker.h"
#include "base/clock.h"
#include "service/transport/caller_shares.h"
#include "service/transport/subordinate_ids.h"

namespace derate {

class People {
 public:
  // Reads the file on the calling thread, only this once.
  People() { ids_->renew(); }

  // Callable from any thread.
  PersonOf person() const {
    return [ids = ids_](uid_t uid) { return ids->person_of(uid); };
  }
  // Looks for changes every kEvery. Call it often, from a single thread. It never blocks.
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
