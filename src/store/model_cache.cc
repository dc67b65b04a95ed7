#include "store/model_cache.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/json.h"
#include "store/sqlite_file.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelMigrations[] = {
    // AUTOINCREMENT: the id of a model that went is never another's.
    R"(CREATE TABLE model (
         id INTEGER PRIMARY KEY AUTOINCREMENT, chip TEXT NOT NULL, form INTEGER NOT NULL,
         kept_unix_nanoseconds INTEGER NOT NULL, signals TEXT NOT NULL,
         saturated INTEGER NOT NULL, numbers BLOB NOT NULL, progress BLOB NOT NULL,
         with_power BLOB NOT NULL, power_curve BLOB NOT NULL);
       CREATE INDEX model_of_chip ON model (chip, form, kept_unix_nanoseconds);)",
};
constexpr const char* kModelReads[] = {
    "SELECT id, chip, form, kept_unix_nanoseconds, signals, saturated, numbers, progress, "
    "with_power, power_curve FROM model"};
constexpr SqliteSchema kModelSchema{0x64726d6f, "models of work", kModelMigrations,
                                    kModelReads};  // "drmo"

// Long enough for a neighbour's write, within a control loop's patience (queued_model_cache.h).
constexpr int kModelBusyMilliseconds = 100;
constexpr std::size_t kMostCoefficients = 64;

// Numbers are blobs of IEEE doubles, little-endian: a column of SQLite's own keeps no NaN and makes
// 0 of -0, and text would have to be parsed.
std::string packed(std::initializer_list<const std::vector<double>*> lists) {
  std::string out;
  for (const auto* list : lists)
    for (const double value : *list)
      for (auto [bits, i] = std::pair(std::bit_cast<std::uint64_t>(value), 0); i < 8;
           ++i, bits >>= 8)
        out += static_cast<char>(bits & 0xff);
  return out;
}

// One NaN where it cannot be such a list.
std::vector<double> unpacked(const SQLite::Column& blob) {
  if (blob.getBytes() % 8 != 0) return {std::numeric_limits<double>::quiet_NaN()};
  const auto* at = static_cast<const unsigned char*>(blob.getBlob());
  std::vector<double> out(static_cast<std::size_t>(blob.getBytes()) / 8);
  for (double& value : out) {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= static_cast<std::uint64_t>(*at++) << (8 * i);
    value = std::bit_cast<double>(bits);
  }
  return out;
}

std::size_t covariances(std::size_t coefficients) { return coefficients * (coefficients + 1) / 2; }

Blob belief_blob(const BeliefModel& belief) { return {packed({&belief.mean, &belief.covariance})}; }

// n means and n (n + 1) / 2 covariances: their sum tells n. What it does not fit is not sound.
BeliefModel belief_of(const SQLite::Column& blob) {
  std::vector<double> all = unpacked(blob);
  std::size_t n = 0;
  while (n + covariances(n) < all.size()) ++n;
  BeliefModel out;
  out.mean.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(n, all.size())));
  out.covariance.assign(all.begin() + static_cast<std::ptrdiff_t>(out.mean.size()), all.end());
  return out;
}

bool is_sound(const BeliefModel& belief) {
  const auto finite = [](double value) { return std::isfinite(value); };
  const std::size_t n = belief.mean.size();
  if (n > kMostCoefficients || belief.covariance.size() != covariances(n)) return false;
  if (!std::all_of(belief.mean.begin(), belief.mean.end(), finite) ||
      !std::all_of(belief.covariance.begin(), belief.covariance.end(), finite))
    return false;
  for (std::size_t i = 0; i < n; ++i)
    if (belief.covariance[covariances(i + 1) - 1] < 0) return false;
  return true;
}

std::string signals_text(const std::vector<std::string>& signals) {
  return json_text(Json(signals));
}

std::vector<std::string> signals_of(const std::string& text) {
  std::vector<std::string> out;
  for (const Json& name : parse_json(text))
    if (name.is_string()) out.push_back(name.get<std::string>());
  return out;
}

constexpr const char* kColumns =
    "id, chip, kept_unix_nanoseconds, signals, saturated, numbers, progress, with_power, "
    "power_curve";

// Empty where it is not sound.
std::optional<PhaseModel> model_of(SQLite::Statement& row, WallTime now) {
  PhaseModel out;
  RowReader read{row};
  WallTime kept{};
  read.all(out.id, out.chip, kept);
  out.age = std::max(Duration{}, now - kept);  // the time of day may have been set back
  out.signals = signals_of(read.next<std::string>());
  read.value(out.saturated);
  const std::vector<double> numbers = unpacked(read.column());
  if (numbers.size() != 3) return std::nullopt;
  out.highest = Megahertz(numbers[0]);
  out.reference_x = numbers[1];
  out.gpu_utilisation = numbers[2];
  out.progress = belief_of(read.column());
  out.with_power = belief_of(read.column());
  out.power_curve = belief_of(read.column());
  if (!is_sound(out)) return std::nullopt;
  return out;
}

}  // namespace

bool is_sound(const PhaseModel& model) {
  const bool finite = std::isfinite(model.highest.value()) && std::isfinite(model.reference_x) &&
                      std::isfinite(model.gpu_utilisation);
  return finite && is_sound(model.progress) && is_sound(model.with_power) &&
         is_sound(model.power_curve);
}

namespace {

using Use = SqliteFile::Use;

struct Models {
  SQLite::Database& sqlite;

  std::vector<PhaseModel> models(const std::string& where, const std::string& chip, WallTime now) {
    SQLite::Statement row(sqlite, fmt::format("SELECT {} FROM model WHERE {} AND form = ? AND "
                                              "kept_unix_nanoseconds > ? ORDER BY "
                                              "kept_unix_nanoseconds DESC, id DESC",
                                              kColumns, where));
    RowBinder{row}.all(chip, kModelForm, now - SqliteModelCache::kOldest);
    std::vector<PhaseModel> out;
    while (row.executeStep())
      if (auto model = model_of(row, now)) out.push_back(*std::move(model));
    return out;
  }

  // Under its id, or a new one where it has none or the id is another chip's.
  std::int64_t put(const PhaseModel& model, WallTime kept) {
    const std::vector<double> numbers{model.highest.value(), model.reference_x,
                                      model.gpu_utilisation};
    const int changed = execute(
        sqlite,
        fmt::format("INSERT INTO model ({}, form) VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO "
                    "UPDATE SET form = excluded.form, "
                    "kept_unix_nanoseconds = excluded.kept_unix_nanoseconds, "
                    "signals = excluded.signals, saturated = excluded.saturated, "
                    "numbers = excluded.numbers, progress = excluded.progress, "
                    "with_power = excluded.with_power, power_curve = excluded.power_curve "
                    "WHERE chip = excluded.chip",
                    kColumns),
        model.id != 0 ? std::optional(model.id) : std::nullopt, model.chip, kept,
        signals_text(model.signals), model.saturated, Blob{packed({&numbers})},
        belief_blob(model.progress), belief_blob(model.with_power), belief_blob(model.power_curve),
        kModelForm);
    if (changed > 0) return model.id != 0 ? model.id : sqlite.getLastInsertRowid();
    PhaseModel fresh = model;
    fresh.id = 0;
    return put(fresh, kept);
  }

  // Of this form, and of all others together. What has a time that is yet to come, as after a clock
  // that was wrong, is the first to go.
  void drop_old(const std::string& chip, WallTime now) {
    for (const char* of : {"form = ?2", "form <> ?2"})
      execute(sqlite,
              fmt::format("DELETE FROM model WHERE id IN (SELECT id FROM model WHERE chip = ?1 "
                          "AND {} ORDER BY iif(kept_unix_nanoseconds > ?3, 0, "
                          "kept_unix_nanoseconds) DESC, id DESC LIMIT -1 OFFSET ?4)",
                          of),
              chip, kModelForm, now, std::int64_t{SqliteModelCache::kMostOfAChip});
  }
};

}  // namespace

SqliteModelCache::SqliteModelCache(std::string path, const Clock& clock, OnError on_error)
    : path_(std::move(path)),
      clock_(clock),
      on_error_(std::move(on_error)),
      file_(std::make_unique<SqliteFile>(
          SqliteFile::Options{.path = path_,
                              .schema = kModelSchema,
                              .busy_milliseconds = kModelBusyMilliseconds,
                              .on_error = [this](const Error& error) { this->report(error); }})) {}

SqliteModelCache::~SqliteModelCache() { write_waiting(Duration{}); }

void SqliteModelCache::report(const Error& error) const {
  if (on_error_) on_error_(error);
}

void SqliteModelCache::report_first(const Result<void>& outcome) {
  const bool failed = !outcome.ok();
  if (failed && !std::exchange(failing_, true)) report(outcome.error());
  if (!failed) failing_ = false;
}

std::vector<PhaseModel> SqliteModelCache::recall(const std::string& chip) {
  write_waiting(Duration{});
  if (chip.empty()) return {};
  auto out = file_->attempt(Use::read, [&](SQLite::Database& sqlite) {
    return Models{sqlite}.models("chip = ?", chip, clock_.wall_now());
  });
  report_first(out.ok() ? Result<void>() : out.error());
  return out.ok() ? *std::move(out) : std::vector<PhaseModel>();
}

std::int64_t SqliteModelCache::write(const PhaseModel& model, WallTime kept) {
  const auto id = file_->write([&](SQLite::Database& sqlite) {
    const std::int64_t out = Models{sqlite}.put(model, kept);
    Models{sqlite}.drop_old(model.chip, clock_.wall_now());
    return out;
  });
  report_first(id.ok() ? Result<void>() : id.error());
  return id.ok() ? *id : 0;
}

// Those that were last written, or tried, so long ago.
void SqliteModelCache::write_waiting(Duration at_least) {
  const Instant now = clock_.now();
  for (auto& [id, recent] : recent_)
    if (recent.waiting && now - recent.written >= at_least) {
      recent.written = now;
      if (write(*recent.waiting, recent.kept) != 0) recent.waiting.reset();
    }
  std::erase_if(recent_, [&](const auto& one) {
    return !one.second.waiting && now - one.second.written >= kWriteEvery;
  });
}

std::int64_t SqliteModelCache::keep(const PhaseModel& model) {
  write_waiting(kWriteEvery);
  if (model.chip.empty()) return 0;
  if (!is_sound(model)) {
    report_first(Error{Errc::bad_data, fmt::format("'{}': a model of {} is not sound: not kept",
                                                   path_, model.chip)});
    return 0;
  }
  const Instant now = clock_.now();
  if (const auto found = recent_.find(model.id); found != recent_.end()) {
    found->second.waiting = model;
    found->second.kept = clock_.wall_now();
    return model.id;
  }
  const std::int64_t id = write(model, clock_.wall_now());
  if (id != 0) recent_[id].written = now;
  return id;
}

Result<std::vector<PhaseModel>> SqliteModelCache::all() {
  std::error_code ignored;
  if (!fs::exists(path_, ignored))
    return Error{Errc::not_found, fmt::format("there is no '{}'", path_)};
  return file_->attempt(Use::look, [&](SQLite::Database& sqlite) {
    return Models{sqlite}.models("? = ''", "", clock_.wall_now());
  });
}

Result<void> SqliteModelCache::forget(const std::vector<std::int64_t>& ids) {
  TRY(all());
  const std::int64_t missing = TRY(file_->attempt(Use::look, [&](SQLite::Database& sqlite) {
    SQLite::Transaction together(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    for (const std::int64_t id : ids)
      if (execute(sqlite, "DELETE FROM model WHERE id = ?", id) == 0) return id;
    together.commit();
    return std::int64_t{0};
  }));
  if (missing == 0) return {};
  return Error{Errc::not_found, fmt::format("'{}' has no model {}", path_, missing)};
}

Result<int> SqliteModelCache::forget_all() {
  TRY(all());
  return file_->attempt(Use::look,
                        [](SQLite::Database& sqlite) { return sqlite.exec("DELETE FROM model"); });
}

}  // namespace derate
