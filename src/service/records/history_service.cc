#include "service/records/history_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace derate {
namespace {

// `more` comes before what is there.
template <class T>
void prepend(std::vector<T>& to, std::vector<T> more) {
  more.insert(more.end(), std::make_move_iterator(to.begin()), std::make_move_iterator(to.end()));
  to = std::move(more);
}

template <class T>
std::size_t drop_oldest(std::vector<T>& rows, std::size_t most) {
  if (rows.size() <= most) return 0;
  const std::size_t dropped = rows.size() - most;
  rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(dropped));
  return dropped;
}

}  // namespace

HistoryService::HistoryService(Clock& clock, Options options)
    : clock_(clock),
      options_(std::move(options)),
      sampler_(clock),
      decisions_(clock),
      made_(clock.now()) {
  if (options_.file.empty()) return;
  auto store = std::make_unique<HistoryStore>(
      options_.file, options_.bounds,
      [log = options_.log](const Error& error) { log.warning(error.message); });
  writer_ = std::make_unique<StoreWriter<HistoryStore>>(std::move(store), options_.where);
  numbering_ = writer_->post([](HistoryStore& file) { return file.last_event(); });
  commanding_ = writer_->post([](HistoryStore& file) { return file.commanded_policies(); });
}

void HistoryService::rules(const Settings& settings) {
  // A reading is held for two of the rounds that it is taken in, or a sampler's gap.
  const Duration gap =
      std::max<Duration>(std::chrono::seconds(2), from_seconds(2 * settings.observer.every_s));
  sampler_.rules(gap, gap + from_seconds(settings.energy_every_s));
  asks_for_counters_ = settings.energy_every_s <= 1;
}

std::vector<std::string> HistoryService::take_wanted() {
  std::vector<std::string> out = sampler_.take_wanted();
  if (!asks_for_counters_) out.clear();
  return out;
}

void HistoryService::take(const GpuRecord& each) {
  if (writer_ == nullptr) return;
  sampler_.take(each);
  if (auto decision = decisions_.take(each)) pending_.decisions.push_back(*std::move(decision));
}

void HistoryService::take(const AttributedTick& tick) {
  if (writer_ != nullptr) sampler_.take(tick);
}

void HistoryService::take(const Event& event) {
  if (writer_ != nullptr) pending_.events.push_back(event);
}

void HistoryService::closed() {
  sampler_.cut();
  decisions_.closed();
}

std::optional<std::int64_t> HistoryService::last_event() {
  if (last_event_) return last_event_;
  if (is_ready(numbering_)) {
    const auto last = numbering_.get();
    if (last.ok()) return last_event_ = *last;
  } else if (numbering_.valid() && clock_.now() - made_ < kNumberPatience) {
    return std::nullopt;
  }
  using Milliseconds = std::chrono::milliseconds;
  last_event_ = std::chrono::floor<Milliseconds>(clock_.wall_now().time_since_epoch()).count();
  return last_event_;
}

std::optional<std::vector<CommandedPolicy>> HistoryService::take_commanded() {
  if (!is_ready(commanding_)) return std::nullopt;
  const auto commanded = commanding_.get();
  return commanded.ok() ? std::optional(*commanded) : std::nullopt;
}

std::optional<HistoryFigures> HistoryService::figures() const {
  if (writer_ == nullptr) return std::nullopt;
  HistoryFigures out = figures_;
  out.waiting_seconds = pending_.seconds.size() + writing_seconds_;
  return out;
}

void HistoryService::step() {
  if (writer_ == nullptr) return;
  collect();
  look_again();
  for (HistorySecond& second : sampler_.take_ready()) {
    parts_ += second.parts.size();
    pending_.seconds.push_back(std::move(second));
  }
  give_up_oldest();
  if (wrote_ && clock_.now() - *wrote_ < kWriteEvery) return;
  begin_writing();
}

// Whole seconds, the oldest first. What is given up is told by the log once, and counted.
void HistoryService::give_up_oldest() {
  std::size_t dropped = 0;
  while (pending_.seconds.size() > kMostSeconds ||
         (parts_ > kMostParts && pending_.seconds.size() > 1)) {
    parts_ -= pending_.seconds.front().parts.size();
    pending_.seconds.erase(pending_.seconds.begin());
    ++dropped;
  }
  dropped += drop_oldest(pending_.events, kMostOthers);
  dropped += drop_oldest(pending_.decisions, kMostOthers);
  if (dropped > 0 && figures_.given_up == 0)
    options_.log.error("the history cannot be written: its oldest seconds are given up");
  figures_.given_up += dropped;
}

void HistoryService::begin_writing() {
  const Instant now = clock_.now();
  const bool tidy = !tidied_ || now - *tidied_ >= kTidyEvery;
  if (writing_.valid() || (pending_.empty() && !tidy)) return;
  wrote_ = now;
  if (tidy) tidied_ = now;
  parts_ = 0;
  writing_seconds_ = pending_.seconds.size();
  writing_ = writer_->post(
      [rows = std::exchange(pending_, {}), ran = now - made_, tidy](HistoryStore& store) mutable {
        Written out{.added = rows.empty() ? Result<void>() : store.add(rows, ran)};
        if (out.added.ok() && tidy) out.tidied = store.tidy(ran);
        if (!out.added.ok()) out.rows = std::move(rows);
        return out;
      });
}

void HistoryService::take_back(HistoryRows rows) {
  for (const HistorySecond& second : rows.seconds) parts_ += second.parts.size();
  prepend(pending_.seconds, std::move(rows.seconds));
  prepend(pending_.events, std::move(rows.events));
  prepend(pending_.decisions, std::move(rows.decisions));
}

void HistoryService::note(const HistoryStore::Tidied& tidied) {
  figures_.bytes = tidied.bytes;
  if (!tidied.tenants_seconds_from) return;
  if (!figures_.tenants_seconds_from)
    options_.log.warning(
        "the history has reached its size: the oldest seconds of tenants are dropped");
  figures_.tenants_seconds_from = tidied.tenants_seconds_from;
}

// What was not written is tried again with the next.
void HistoryService::collect() {
  if (!is_ready(writing_)) return;
  Written done = writing_.get();
  writing_seconds_ = 0;
  if (done.tidied && done.tidied->ok()) note(**done.tidied);
  Error error{Errc::io, ""};
  const bool failed = !done.added.ok() || (done.tidied && !done.tidied->ok());
  if (failed) error = done.added.ok() ? done.tidied->error() : done.added.error();
  if (!done.added.ok()) take_back(std::move(done.rows));
  if (failed && !figures_.failing)
    options_.log.error("the history is not written: " + error.message);
  if (!failed && figures_.failing) options_.log.info("the history is written again");
  figures_.failing = failed;
}

void HistoryFailures::add(const Error& error) {
  if (error.code != Errc::bad_data && error.code != Errc::io) return;
  const std::lock_guard lock(mutex_);
  seen_.newest = error;
  ++seen_.count;
}

HistoryFailures::Seen HistoryFailures::take() {
  const std::lock_guard lock(mutex_);
  Seen out = seen_;
  seen_.newest.reset();
  return out;
}

void HistoryService::look_again() {
  const auto [error, count] = failures_->take();
  figures_.failed_reads = count;
  if (!error || (looked_ && clock_.now() - *looked_ < kLookEvery)) return;
  looked_ = clock_.now();
  options_.log.error("the history cannot be read: " + error->message);
  if (error->code == Errc::bad_data)
    (void)writer_->post([](HistoryStore& store) { store.distrust(); });
}

void HistoryService::stop() {
  if (writer_ == nullptr) return;
  const auto wait = [&] {
    if (writing_.valid()) writing_.wait_for(StoreWriter<HistoryStore>::kEndPatience);
    collect();
  };
  wait();
  closed();
  wrote_.reset();
  step();
  wait();
}

}  // namespace derate
