// Writes the history: takes records, ticks of attribution and events on the loop's thread, and
// hands what is known of each second to the writer of the file, which waits for the disk on another
// thread.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "config/settings.h"
#include "service/records/decision_watch.h"
#include "service/records/history_figures.h"
#include "service/records/history_sampler.h"
#include "store/history/history_store.h"
#include "store/store_writer.h"

namespace derate {

// What readers of the file could not read. For any thread; who reads on a thread that may outlive
// the service has a share of it.
class HistoryFailures {
 public:
  // One that is the file's fault; others do not count.
  void add(const Error& error);
  struct Seen {
    std::optional<Error> newest;  // since the last time
    std::uint64_t count = 0;      // of all
  };
  Seen take();

 private:
  std::mutex mutex_;
  Seen seen_;
};

class HistoryService {
 public:
  struct Options {
    std::string file = {};  // empty: nothing is kept
    HistoryBounds bounds = {};
    Log log = {};
    BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread;
  };
  // Each second is settled a moment after its end, and written then: who is killed loses two
  // seconds at most.
  static constexpr Duration kWriteEvery = std::chrono::milliseconds(500);
  static constexpr Duration kTidyEvery = std::chrono::minutes(1);
  // How often the file is looked at again, and told of, because it could not be read.
  static constexpr Duration kLookEvery = std::chrono::minutes(1);
  // The highest number of an event is waited for so long; then events are numbered by the time of
  // day, above all that the file can have.
  static constexpr Duration kNumberPatience = std::chrono::seconds(5);
  // Where nothing can be written the oldest beyond these are given up.
  static constexpr std::size_t kMostSeconds = 300, kMostParts = 20'000, kMostOthers = 4096;

  // `clock` outlives it.
  HistoryService(Clock& clock, Options options);

  bool enabled() const { return writer_ != nullptr; }
  void rules(const Settings& settings);
  // Each record, as a sink of the fleet; each tick of attribution; each event.
  void take(const GpuRecord& each);
  void take(const AttributedTick& tick);
  void take(const Event& event);
  // UUIDs of GPUs whose counter is to be read soon: at a second's end, where the configuration has
  // it read each second anyhow. Where it wants that more seldom, seconds are settled as seldom.
  std::vector<std::string> take_wanted();
  // The GPUs are closed: what is there of this second is kept.
  void closed();
  // Between two rounds: writes what is due.
  void step();
  // Writes what is left to write; twice StoreWriter::kEndPatience at most.
  void stop();

  // The highest number of an event that was given before; empty: not known yet.
  std::optional<std::int64_t> last_event();
  // The policies that commands of earlier processes had set: once, when they have been read.
  std::optional<std::vector<CommandedPolicy>> take_commanded();
  // Empty: nothing is kept.
  std::optional<HistoryFigures> figures() const;
  // For who reads the file: after a failure the writer looks at it again, which sets a broken one
  // aside.
  std::shared_ptr<HistoryFailures> failures() const { return failures_; }

 private:
  struct Written {
    Result<void> added;
    HistoryRows rows;
    std::optional<Result<HistoryStore::Tidied>> tidied;
  };
  void collect();
  void take_back(HistoryRows rows);
  void give_up_oldest();
  void begin_writing();
  void note(const HistoryStore::Tidied& tidied);
  void look_again();

  Clock& clock_;
  Options options_;
  HistorySampler sampler_;
  DecisionWatch decisions_;
  bool asks_for_counters_ = true;
  HistoryRows pending_;
  std::size_t parts_ = 0;            // of pending seconds
  std::size_t writing_seconds_ = 0;  // with the writer now
  Instant made_;
  std::optional<Instant> wrote_, tidied_, looked_;
  std::future<Written> writing_;
  std::future<Result<std::int64_t>> numbering_;
  std::future<Result<std::vector<CommandedPolicy>>> commanding_;
  std::optional<std::int64_t> last_event_;
  HistoryFigures figures_;
  std::shared_ptr<HistoryFailures> failures_ = std::make_shared<HistoryFailures>();
  std::unique_ptr<StoreWriter<HistoryStore>> writer_;  // null: nothing is kept
};

}  // namespace derate
