#include "store/usage_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "base/unique_fd.h"
#include "store/sqlite_file.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMigrations[] = {
    R"(CREATE TABLE tenant (
         id INTEGER PRIMARY KEY, gpu TEXT NOT NULL, key TEXT NOT NULL, pid INTEGER NOT NULL,
         process TEXT NOT NULL, user TEXT NOT NULL, container TEXT NOT NULL,
         name_space TEXT NOT NULL, pod TEXT NOT NULL, job TEXT NOT NULL, instance TEXT NOT NULL,
         UNIQUE (gpu, key, pid, process, user, container, name_space, pod, job, instance));
       CREATE TABLE usage (
         bucket_unix_seconds INTEGER NOT NULL, tenant INTEGER NOT NULL REFERENCES tenant (id),
         base_mj INTEGER NOT NULL, context_mj INTEGER NOT NULL, dynamic_mj INTEGER NOT NULL,
         sigma_mj INTEGER NOT NULL, unsure_mj INTEGER NOT NULL, time_ms INTEGER NOT NULL,
         PRIMARY KEY (bucket_unix_seconds, tenant)) WITHOUT ROWID;
       CREATE TABLE board (
         bucket_unix_seconds INTEGER NOT NULL, gpu TEXT NOT NULL,
         board_mj INTEGER NOT NULL, unallocated_mj INTEGER NOT NULL,
         by_power_mj INTEGER NOT NULL, time_ms INTEGER NOT NULL, lost_ms INTEGER NOT NULL,
         PRIMARY KEY (bucket_unix_seconds, gpu)) WITHOUT ROWID;
       CREATE TABLE hours (until_unix_seconds INTEGER NOT NULL);
       INSERT INTO hours VALUES (-9223372036854775808);)",
};
constexpr SqliteSchema kSchema{0x64727573, "energy by tenant", kMigrations};  // "drus"

constexpr int kBusyMilliseconds = 200;  // of a thread of its own, and of readers
constexpr std::int64_t kNoPid = -1;     // in a UNIQUE, where NULLs are never equal
constexpr std::int64_t kHour = 3600;

constexpr const char* kTenantColumns =
    "gpu, key, pid, process, user, container, name_space, pod, job, instance";

// Added to what the bucket has already.
constexpr const char* kAddUsage =
    "ON CONFLICT DO UPDATE SET base_mj = base_mj + excluded.base_mj, "
    "context_mj = context_mj + excluded.context_mj, "
    "dynamic_mj = dynamic_mj + excluded.dynamic_mj, sigma_mj = sigma_mj + excluded.sigma_mj, "
    "unsure_mj = unsure_mj + excluded.unsure_mj, time_ms = time_ms + excluded.time_ms";
constexpr const char* kAddBoard =
    "ON CONFLICT DO UPDATE SET board_mj = board_mj + excluded.board_mj, "
    "unallocated_mj = unallocated_mj + excluded.unallocated_mj, "
    "by_power_mj = by_power_mj + excluded.by_power_mj, time_ms = time_ms + excluded.time_ms, "
    "lost_ms = lost_ms + excluded.lost_ms";

std::int64_t unix_seconds(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}
WallTime wall_time(std::int64_t unix_s) { return WallTime{std::chrono::seconds(unix_s)}; }

// The beginning of the hour; also before 1970, where the time of day was never set.
std::int64_t hour_of(std::int64_t unix_s) { return unix_s - ((unix_s % kHour) + kHour) % kHour; }

// Binds one parameter after the other.
struct Binder {
  SQLite::Statement& row;
  int at = 0;
  Binder& operator<<(std::int64_t value) { return row.bind(++at, value), *this; }
  Binder& operator<<(const std::string& value) { return row.bind(++at, value), *this; }
};

Binder& operator<<(Binder& out, const UsageRow& row) {
  const TenantLabels& who = row.labels;
  return out << row.gpu << row.key << who.pid.value_or(kNoPid) << who.process << who.user
             << who.container << who.name_space << who.pod << who.job << who.instance;
}

Binder& operator<<(Binder& out, const UsageSums& sums) {
  return out << sums.base_mj << sums.context_mj << sums.dynamic_mj << sums.sigma_mj
             << sums.unsure_mj << sums.time_ms;
}

// Of the columns of kTenantColumns, from the first of the row on.
UsageRow tenant_of(SQLite::Statement& row) {
  UsageRow out;
  out.gpu = row.getColumn(0).getString();
  out.key = row.getColumn(1).getString();
  if (const std::int64_t pid = row.getColumn(2).getInt64(); pid != kNoPid) out.labels.pid = pid;
  out.labels.process = row.getColumn(3).getString();
  out.labels.user = row.getColumn(4).getString();
  out.labels.container = row.getColumn(5).getString();
  out.labels.name_space = row.getColumn(6).getString();
  out.labels.pod = row.getColumn(7).getString();
  out.labels.job = row.getColumn(8).getString();
  out.labels.instance = row.getColumn(9).getString();
  return out;
}

// " AND gpu IN (?, ?)"; nothing for all.
std::string among(const std::vector<std::string>& gpus) {
  std::string out;
  for (std::size_t i = 0; i < gpus.size(); ++i) out += i == 0 ? " AND gpu IN (?" : ", ?";
  return out.empty() ? out : out + ")";
}

void bind(SQLite::Statement& row, WallTime from, WallTime to,
          const std::vector<std::string>& gpus) {
  Binder out{row};
  // A bucket begins on a whole second.
  const auto whole = [](WallTime time) {
    return std::chrono::ceil<std::chrono::seconds>(time).time_since_epoch().count();
  };
  out << whole(from) << whole(to);
  for (const std::string& gpu : gpus) out << gpu;
}

constexpr const char* kInTime = "bucket_unix_seconds >= ? AND bucket_unix_seconds < ?";

Usage read_all(SQLite::Database& sqlite, WallTime from, WallTime to,
               const std::vector<std::string>& gpus) {
  Usage out;
  SQLite::Transaction one_moment(sqlite);
  const std::int64_t hours =
      sqlite.execAndGet("SELECT max(until_unix_seconds) FROM hours").getInt64();
  SQLite::Statement row(
      sqlite, fmt::format("SELECT {}, min(bucket_unix_seconds), sum(base_mj), sum(context_mj), "
                          "sum(dynamic_mj), sum(sigma_mj), sum(unsure_mj), sum(time_ms) FROM "
                          "usage JOIN tenant ON tenant.id = usage.tenant WHERE {}{} GROUP BY "
                          "tenant.id ORDER BY gpu, key, tenant.id",
                          kTenantColumns, kInTime, among(gpus)));
  bind(row, from, to, gpus);
  while (row.executeStep()) {
    UsageRow& tenant = out.tenants.emplace_back(tenant_of(row));
    const auto sum = [&](int at) { return row.getColumn(10 + at).getInt64(); };
    tenant.bucket = wall_time(sum(0));
    tenant.sums = {sum(1), sum(2), sum(3), sum(4), sum(5), sum(6)};
  }
  SQLite::Statement board(
      sqlite, fmt::format("SELECT gpu, min(bucket_unix_seconds), max(bucket_unix_seconds), "
                          "sum(board_mj), sum(unallocated_mj), sum(by_power_mj), sum(time_ms), "
                          "sum(lost_ms) FROM board WHERE {}{} GROUP BY gpu ORDER BY gpu",
                          kInTime, among(gpus)));
  bind(board, from, to, gpus);
  while (board.executeStep()) {
    const auto sum = [&](int at) { return board.getColumn(at).getInt64(); };
    out.boards.push_back({wall_time(sum(1)),
                          board.getColumn(0).getString(),
                          {sum(3), sum(4), sum(5), sum(6), sum(7)}});
    const Duration length = sum(2) < hours ? Duration(std::chrono::seconds(kHour)) : kUsageBucket;
    out.first = std::min(out.first.value_or(WallTime::max()), wall_time(sum(1)));
    out.last = std::max(out.last.value_or(WallTime::min()), wall_time(sum(2)) + length);
  }
  return out;
}

}  // namespace

void UsageSums::add(const UsageSums& more) {
  base_mj += more.base_mj;
  context_mj += more.context_mj;
  dynamic_mj += more.dynamic_mj;
  sigma_mj += more.sigma_mj;
  unsure_mj += more.unsure_mj;
  time_ms += more.time_ms;
}

void UsageBoardSums::add(const UsageBoardSums& more) {
  board_mj += more.board_mj;
  unallocated_mj += more.unallocated_mj;
  by_power_mj += more.by_power_mj;
  time_ms += more.time_ms;
  lost_ms += more.lost_ms;
}

WallTime usage_bucket(WallTime time) { return std::chrono::floor<std::chrono::minutes>(time); }

struct UsageStore::Database {
  SQLite::Database sqlite;

  void begin() {
    sqlite.setBusyTimeout(kBusyMilliseconds);
    migrate(sqlite, kSchema);
    sqlite.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON");
    if (const std::string found = sqlite.execAndGet("PRAGMA quick_check(1)").getString();
        found != "ok")
      throw SQLite::Exception(found, SQLITE_CORRUPT);
  }

  std::int64_t id_of(const UsageRow& row) {
    SQLite::Statement known(
        sqlite,
        "SELECT id FROM tenant WHERE gpu = ? AND key = ? AND pid = ? AND process = ? AND user = ? "
        "AND container = ? AND name_space = ? AND pod = ? AND job = ? AND instance = ?");
    Binder to_known{known};
    to_known << row;
    if (known.executeStep()) return known.getColumn(0).getInt64();
    SQLite::Statement fresh(sqlite, fmt::format("INSERT INTO tenant ({}) VALUES "
                                                "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                                                kTenantColumns));
    Binder to_fresh{fresh};
    to_fresh << row;
    fresh.exec();
    return sqlite.getLastInsertRowid();
  }

  // Late: of a time whose minutes are hours already, as when the time of day was set back.
  std::int64_t bucket_of(WallTime bucket, std::int64_t hours_until) {
    const std::int64_t at = unix_seconds(bucket);
    return at < hours_until ? hour_of(at) : at;
  }

  void add(const UsageRows& rows) {
    SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    const std::int64_t hours =
        sqlite.execAndGet("SELECT max(until_unix_seconds) FROM hours").getInt64();
    for (const UsageRow& row : rows.tenants) {
      SQLite::Statement one(
          sqlite, fmt::format("INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?) {}", kAddUsage));
      Binder out{one};
      out << bucket_of(row.bucket, hours) << id_of(row) << row.sums;
      one.exec();
    }
    for (const UsageBoardRow& row : rows.boards) {
      SQLite::Statement one(
          sqlite, fmt::format("INSERT INTO board VALUES (?, ?, ?, ?, ?, ?, ?) {}", kAddBoard));
      Binder out{one};
      out << bucket_of(row.bucket, hours) << row.gpu << row.sums.board_mj << row.sums.unallocated_mj
          << row.sums.by_power_mj << row.sums.time_ms << row.sums.lost_ms;
      one.exec();
    }
    all.commit();
  }

  void make_hours(std::int64_t since, std::int64_t until) {
    // Hours among them already are left as they are: they add to nothing.
    const std::string which =
        fmt::format("bucket_unix_seconds >= {} AND bucket_unix_seconds < {}", since, until);
    const std::string hour = "bucket_unix_seconds - bucket_unix_seconds % 3600";
    sqlite.exec(fmt::format(
        "CREATE TEMP TABLE new_usage AS SELECT {0} AS hour, tenant, sum(base_mj), "
        "sum(context_mj), sum(dynamic_mj), sum(sigma_mj), sum(unsure_mj), sum(time_ms) FROM usage "
        "WHERE {1} GROUP BY hour, tenant; DELETE FROM usage WHERE {1}; "
        "INSERT INTO usage SELECT * FROM new_usage WHERE true {2}; DROP TABLE new_usage",
        hour, which, kAddUsage));
    sqlite.exec(fmt::format(
        "CREATE TEMP TABLE new_board AS SELECT {0} AS hour, gpu, sum(board_mj), "
        "sum(unallocated_mj), sum(by_power_mj), sum(time_ms), sum(lost_ms) FROM board WHERE {1} "
        "GROUP BY hour, gpu; DELETE FROM board WHERE {1}; "
        "INSERT INTO board SELECT * FROM new_board WHERE true {2}; DROP TABLE new_board",
        hour, which, kAddBoard));
    sqlite.exec(fmt::format("UPDATE hours SET until_unix_seconds = {}", until));
  }

  void tidy(std::int64_t oldest, std::int64_t minutes_from) {
    SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
    for (const char* table : {"usage", "board"})
      sqlite.exec(fmt::format("DELETE FROM {} WHERE bucket_unix_seconds < {}", table, oldest));
    const std::int64_t hours =
        sqlite.execAndGet("SELECT max(until_unix_seconds) FROM hours").getInt64();
    if (minutes_from > hours) make_hours(std::max(hours, std::int64_t{0}), minutes_from);
    sqlite.exec("DELETE FROM tenant WHERE id NOT IN (SELECT tenant FROM usage)");
    all.commit();
  }
};

UsageStore::UsageStore(std::string path, Tell tell)
    : path_(std::move(path)), tell_(std::move(tell)) {}
UsageStore::~UsageStore() = default;

void UsageStore::open() {
  if (database_ != nullptr && !has_moved(database_->sqlite)) return;
  database_.reset();
  make_file(path_, 0640);
  auto made = std::make_unique<Database>(Database{SQLite::Database(path_, SQLite::OPEN_READWRITE)});
  made->begin();
  database_ = std::move(made);
}

// Of a file that can be looked at later.
bool UsageStore::set_aside(const std::string& why) {
  database_.reset();
  std::error_code failed;
  if (!fs::is_regular_file(fs::symlink_status(path_, failed))) return false;
  fs::rename(path_, path_ + ".aside", failed);
  if (failed) return false;
  for (const char* ending : {"-wal", "-shm"}) fs::remove(path_ + ending, failed);
  if (tell_) tell_({Errc::bad_data, why + ": set aside, begun anew"});
  return true;
}

// Exceptions end here. A broken file is set aside, and the same is done with a new one.
template <class F>
Result<void> UsageStore::attempt(F&& work) {
  for (bool again = true;; again = false) {
    try {
      open();
      work();
      return {};
    } catch (const SQLite::Exception& problem) {
      Error error = sqlite_error(problem, path_);
      const bool broken = error.code == Errc::bad_data && problem.getErrorCode() != SQLITE_SCHEMA;
      if (again && broken && set_aside(error.message)) continue;
      if (error.code != Errc::busy) database_.reset();
      return error;
    }
  }
}

Result<void> UsageStore::add(const UsageRows& rows) {
  if (rows.empty()) return {};
  return attempt([&] { database_->add(rows); });
}

Result<void> UsageStore::tidy(WallTime now, Duration keep) {
  return attempt(
      [&] { database_->tidy(unix_seconds(now - keep), hour_of(unix_seconds(now - kMinutesFor))); });
}

Result<Usage> read_usage(const std::string& path, WallTime from, WallTime to,
                         const std::vector<std::string>& gpus) {
  if (::access(path.c_str(), F_OK) != 0 && errno == ENOENT)
    return Error{Errc::not_found, fmt::format("'{}': no energy is kept yet", path)};
  if (::access(path.c_str(), R_OK) != 0)
    return Error{Errc::no_permission, fmt::format("'{}': may not be read", path)};
  try {
    SQLite::Database sqlite(path, SQLite::OPEN_READONLY, kBusyMilliseconds);
    check_schema(sqlite, kSchema);
    return read_all(sqlite, from, to, gpus);
  } catch (const SQLite::Exception& problem) {
    return sqlite_error(problem, path);
  }
}

}  // namespace derate
