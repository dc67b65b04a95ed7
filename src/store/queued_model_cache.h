// Cache of models of work for the policies of a control loop, which reads and writes its file on
// another thread.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "base/background_worker.h"
#include "base/clock.h"
#include "store/model_cache.h"
#include "store/store_writer.h"

namespace derate {

// For one thread, which waits for no disk longer than kPatience: a policy that asks too early, or
// of a disk that hangs, begins without models.
class QueuedModelCache final : public ModelCache {
 public:
  // Of one recall. While that is still not answered the next ones do not wait.
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  // What could not be written is tried again with the next; of more models the oldest are lost.
  static constexpr std::size_t kMostUnwritten = SqliteModelCache::kMostOfAChip;

  enum class IfMissing : std::uint8_t { make, leave };

  // As SqliteModelCache. `tell` is called on the thread of the file, too, and may outlive it, as a
  // thread that hangs does; `clock` need not.
  QueuedModelCache(std::string path, const Clock& clock, SqliteModelCache::OnError on_error,
                   BackgroundWorker::Where where);
  // Waits for what is still to be written, StoreWriter::kEndPatience at most.
  ~QueuedModelCache() override;

  // With all that was kept before.
  std::vector<PhaseModel> recall(const std::string& chip) override {
    return recall(chip, IfMissing::make);
  }
  std::vector<PhaseModel> recall(const std::string& chip, IfMissing file);
  // A new model gets an id at once, below 0, by which it may be kept again; the file has another
  // for it. 0, or the id it had, where too many wait to be written: it is lost.
  std::int64_t keep(const PhaseModel& model) override;

 private:
  class File;

  std::string path_;
  const Clock& clock_;
  SqliteModelCache::OnError on_error_;
  std::int64_t last_id_ = 0;
  bool full_ = false;                            // and that was told
  std::future<std::vector<PhaseModel>> answer_;  // of a recall that was not waited for
  std::unique_ptr<StoreWriter<File>> writer_;
};

}  // namespace derate
