// TrialWriter keeps the registry of jobs and trials, and readings of knobs, in a file: reads it
// once, before the loop begins; writes it on another thread, one write after the other. Queries are
// answered from memory.
#pragma once

#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/background_worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/store_writer.h"
#include "store/tune_store.h"
#include "tune/trial_registry.h"

namespace derate {

struct TrialWriterOptions {
  std::string file;  // empty: nothing is kept
  Log log = {};
  BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
};

class TrialWriter {
 public:
  // What came so soon after the last write is written together, by the next keep().
  static constexpr Duration kKeepEvery = std::chrono::milliseconds(100);
  // A disk that is full is not asked in every round.
  static constexpr Duration kRetryEvery = std::chrono::seconds(1);
  // A file that others have locked, or a disk that does not answer, is no news before that.
  static constexpr Duration kBusyPatience = std::chrono::seconds(5);

  // Reads the file into `book`. Both references outlive it.
  TrialWriter(TrialRegistry& book, const Clock& clock, TrialWriterOptions options);
  // Writes what waits: twice StoreWriter::kEndPatience at most.
  ~TrialWriter();
  TrialWriter(const TrialWriter&) = delete;
  TrialWriter& operator=(const TrialWriter&) = delete;

  // Begins to write what has changed, unless a write is under way: once a round.
  void keep();
  // The same, unless one has begun less than kKeepEvery ago.
  void keep_soon();

  // Whether a user's person may store more, as of the last write. Errors: busy, with the number
  // stored and the limit.
  Result<void> check_room(std::uint32_t uid) const;

  // What was measured of such work, ascending by setting; empty where nothing was.
  std::vector<TuneReadingRow> profile(const TuneProfileKey& key) const;
  // In place of what there was; written with the book.
  void keep_profile(TuneProfileRow profile);

 private:
  struct File;
  // What came of a write, and of what it was.
  struct Written {
    Result<void> done;
    int generation = 0;
    std::optional<TuneBytes> bytes = {};  // empty: the file could not be asked
    std::vector<Error> told = {};         // of the file
  };
  struct Unwritten {
    TrialChanges book;
    std::set<TuneProfileKey> profiles;
  };

  void load(File& file);
  void begin_writing();
  void take_written();
  void take_written(const Written& written);
  bool wait_for_write() const;
  void put_anew();
  void note_hanging();
  void note(const Result<void>& done);
  void log_errors(const std::vector<Error>& errors) const;

  TrialRegistry& book_;
  const Clock& clock_;
  TrialWriterOptions options_;
  std::map<TuneProfileKey, TuneProfileRow> profiles_;
  std::set<TuneProfileKey> changed_profiles_;
  TuneBytes bytes_;
  int generation_ = 0;
  bool failing_ = false;
  Instant log_again_ = Instant::min();
  std::optional<Instant> began_, busy_since_;
  Unwritten under_way_;
  std::future<Written> writing_;
  std::unique_ptr<StoreWriter<File>> writer_;  // null: nothing is kept
};

}  // namespace derate
