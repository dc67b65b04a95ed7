#include "tune/trial_writer.h"

#include <algorithm>
#include <utility>

#include "tune/trial_rows.h"

namespace derate {
namespace {

// What fails again is logged again after that.
constexpr Duration kLogEvery = std::chrono::minutes(10);

// The file bounds readings in the same way: those that were measured the longest ago go.
void drop_old(std::map<TuneProfileKey, TuneProfileRow>& profiles) {
  const auto count = [&] {
    std::size_t out = 0;
    for (const auto& [key, profile] : profiles) out += profile.readings.size();
    return out;
  };
  const auto older = [](const auto& a, const auto& b) { return a.second.kept < b.second.kept; };
  while (count() > TuneStore::kMostReadings)
    profiles.erase(std::min_element(profiles.begin(), profiles.end(), older));
}

}  // namespace

// What the file's thread has, and the loop's before it begins.
struct TrialWriter::File {
  explicit File(const std::string& path)
      : store(path, [this](const Error& error) { told.push_back(error); }) {}

  Written write(const TuneChanges& changes) {
    Written out{store.write(changes), store.generation()};
    if (auto bytes = store.bytes_kept(); bytes.ok()) out.bytes = *std::move(bytes);
    out.told = std::exchange(told, {});
    return out;
  }

  std::vector<Error> told;
  TuneStore store;
};

TrialWriter::TrialWriter(TrialRegistry& book, const Clock& clock, TrialWriterOptions options)
    : book_(book), clock_(clock), options_(std::move(options)) {
  if (options_.file.empty()) return;
  auto file = std::make_unique<File>(options_.file);
  load(*file);
  writer_ = std::make_unique<StoreWriter<File>>(std::move(file), options_.where);
}

TrialWriter::~TrialWriter() {
  bool ended = wait_for_write();
  // Twice: the file may have been begun anew. The last tries wait for no pause.
  for (int i = 0; i < 2 && ended; ++i) {
    take_written();
    began_.reset();
    keep();
    ended = wait_for_write();
  }
  take_written();
  if (!ended) note_hanging();
}

bool TrialWriter::wait_for_write() const {
  return !writing_.valid() ||
         writing_.wait_for(StoreWriter<File>::kEndPatience) == std::future_status::ready;
}

void TrialWriter::note_hanging() {
  note(Error{Errc::busy, "'" + options_.file + "': a write has not come to its end"});
}

void TrialWriter::load(File& file) {
  std::vector<std::string> left_out;
  const auto loaded = file.store.load([&](const TuneRows& rows) {
    left_out = restore_trials(book_, rows, clock_.now());
    for (const TuneProfileRow& profile : rows.profiles) profiles_[profile.key] = profile;
  });
  log_errors(std::exchange(file.told, {}));
  note(loaded);
  if (loaded.ok())
    if (auto bytes = file.store.bytes_kept(); bytes.ok()) bytes_ = *std::move(bytes);
  generation_ = file.store.generation();
  for (const std::string& text : left_out) options_.log.warning(text);
}

void TrialWriter::log_errors(const std::vector<Error>& errors) const {
  for (const Error& error : errors) options_.log.warning("jobs that recur: " + error.message);
}

// One that fails now and then is told of as seldom as one that always does.
void TrialWriter::note(const Result<void>& done) {
  failing_ = !done.ok();
  if (done.ok() || clock_.now() < log_again_) return;
  log_again_ = clock_.now() + kLogEvery;
  options_.log.error("jobs that recur are not kept: " + done.error().message);
}

Result<void> TrialWriter::check_room(std::uint32_t uid) const {
  TuneBytes of_people;
  for (const auto& [user, bytes] : bytes_) of_people[book_.person(user)] += bytes;
  return derate::check_room(of_people, book_.person(uid));
}

void TrialWriter::keep() {
  if (writer_ == nullptr) {
    (void)book_.take_changes();
    return;
  }
  take_written();
  begin_writing();
  take_written();  // where it was written at once
}

void TrialWriter::keep_soon() {
  if (!began_ || clock_.now() - *began_ >= kKeepEvery) keep();
}

void TrialWriter::begin_writing() {
  if (writing_.valid()) {
    if (!failing_ && clock_.now() - *began_ >= kBusyPatience) note_hanging();
    return;
  }
  // Nothing to write says nothing of the file.
  if (!book_.has_changes() && changed_profiles_.empty()) return;
  if (failing_ && began_ && clock_.now() - *began_ < kRetryEvery) return;
  began_ = clock_.now();
  under_way_ = {book_.take_changes(), std::exchange(changed_profiles_, {})};
  TuneChanges rows = rows_of(book_, under_way_.book);
  for (const TuneProfileKey& key : under_way_.profiles)
    if (const auto at = profiles_.find(key); at != profiles_.end())
      rows.profiles.push_back(at->second);
  writing_ = writer_->post([rows = std::move(rows)](File& file) { return file.write(rows); });
}

void TrialWriter::take_written() {
  if (is_ready(writing_)) take_written(writing_.get());
}

void TrialWriter::take_written(const Written& written) {
  log_errors(written.told);
  if (written.bytes) bytes_ = *written.bytes;
  if (!written.done.ok()) {
    book_.not_kept(under_way_.book);
    changed_profiles_.merge(under_way_.profiles);
  }
  if (std::exchange(generation_, written.generation) != written.generation) put_anew();
  // As while its own log is cut: it is written with the next round.
  if (!written.done.ok() && written.done.error().code == Errc::busy) {
    if (!busy_since_) busy_since_ = *began_;
    if (*began_ - *busy_since_ < kBusyPatience) return;
  } else {
    busy_since_.reset();
  }
  note(written.done);
}

// Another file was begun.
void TrialWriter::put_anew() {
  book_.not_kept(all_of(book_));
  for (const auto& [key, profile] : profiles_) changed_profiles_.insert(key);
}

std::vector<TuneReadingRow> TrialWriter::profile(const TuneProfileKey& key) const {
  const auto at = profiles_.find(key);
  return at != profiles_.end() ? at->second.readings : std::vector<TuneReadingRow>();
}

void TrialWriter::keep_profile(TuneProfileRow profile) {
  if (writer_ == nullptr) return;
  std::ranges::sort(profile.readings, {}, &TuneReadingRow::setting);
  changed_profiles_.insert(profile.key);
  profiles_[profile.key] = std::move(profile);
  drop_old(profiles_);
}

}  // namespace derate
