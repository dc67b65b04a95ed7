#include "store/queued_model_cache.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"

namespace derate {
namespace {

// Ids that were given for ids of the file. Policies know few models; the oldest are forgotten, and
// such a model would be kept as a new one.
constexpr std::size_t kMostIds = 4096;

}  // namespace

// What the file's thread has.
class QueuedModelCache::File {
 public:
  struct Moment {
    Instant now{};
    WallTime wall{};
  };

  File(const std::string& path, const SqliteModelCache::OnError& on_error)
      : path_(path), cache_(path, clock_, on_error) {}

  std::vector<PhaseModel> recall(const std::string& chip, IfMissing file, Moment at) {
    write();
    clock_.at = at;
    std::error_code ignored;
    if (file == IfMissing::leave && !std::filesystem::exists(path_, ignored)) return {};
    return cache_.recall(chip);
  }

  void keep(PhaseModel model, Moment at) {
    std::erase_if(unwritten_, [&](const Kept& one) { return one.model.id == model.id; });
    unwritten_.push_back({std::move(model), at});
    if (unwritten_.size() > kMostUnwritten) unwritten_.erase(unwritten_.begin());
    write();
    clock_.at = at;
  }

  // In the order in which they were kept, up to the first that cannot be written.
  void write() {
    while (!unwritten_.empty() && write(unwritten_.front())) unwritten_.erase(unwritten_.begin());
  }

 private:
  struct Kept {
    PhaseModel model;
    Moment at;
  };
  // The time at which a job was posted: the thread may outlive its caller's clock.
  class MomentClock final : public Clock {
   public:
    Instant now() const override { return at.now; }
    WallTime wall_now() const override { return at.wall; }
    bool sleep_until(Instant) override { CHECK(false); }

    Moment at;
  };

  // False: it is worth another try.
  bool write(const Kept& one) {
    PhaseModel model = one.model;
    if (const auto row = rows_.find(model.id); row != rows_.end()) model.id = row->second;
    if (model.id < 0) model.id = 0;
    clock_.at = one.at;
    const std::int64_t row = cache_.keep(model);
    if (row == 0) return model.chip.empty() || !is_sound(model);
    if (row != one.model.id) rows_[one.model.id] = row;
    if (rows_.size() > kMostIds) rows_.erase(std::prev(rows_.end()));
    return true;
  }

  std::string path_;
  MomentClock clock_;
  SqliteModelCache cache_;
  std::map<std::int64_t, std::int64_t> rows_;  // by the ids that were given; the newest first
  std::vector<Kept> unwritten_;                // the oldest first
};

QueuedModelCache::QueuedModelCache(std::string path, const Clock& clock,
                                   SqliteModelCache::OnError on_error,
                                   BackgroundWorker::Where where)
    : path_(std::move(path)),
      clock_(clock),
      on_error_(std::move(on_error)),
      writer_(
          std::make_unique<StoreWriter<File>>(std::make_unique<File>(path_, on_error_), where)) {}

QueuedModelCache::~QueuedModelCache() {
  writer_->post([](File& file) { file.write(); });
}

std::vector<PhaseModel> QueuedModelCache::recall(const std::string& chip, IfMissing file) {
  if (answer_.valid() && !is_ready(answer_)) return {};
  answer_ = writer_->post([chip, file, at = File::Moment{clock_.now(), clock_.wall_now()}](
                              File& models) { return models.recall(chip, file, at); });
  if (answer_.wait_for(kPatience) == std::future_status::ready) return answer_.get();
  if (on_error_)
    on_error_({Errc::busy, fmt::format("'{}': not read within {:.1f} s: begun without models",
                                       path_, seconds(kPatience))});
  return {};
}

std::int64_t QueuedModelCache::keep(const PhaseModel& model) {
  if (writer_->is_full()) {
    if (!std::exchange(full_, true) && on_error_)
      on_error_({Errc::busy, fmt::format("'{}': {} models wait to be written: the next are lost",
                                         path_, StoreWriter<File>::kMostWaiting)});
    return model.id;
  }
  full_ = false;
  PhaseModel kept = model;
  if (kept.id == 0) kept.id = --last_id_;
  writer_->post([kept, at = File::Moment{clock_.now(), clock_.wall_now()}](File& models) {
    models.keep(kept, at);
  });
  return kept.id;
}

}  // namespace derate
