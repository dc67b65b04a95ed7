#include "store/usage_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "store/sqlite_file.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

constexpr const char* kUsageMigrations[] = {
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
    // How long each bucket is, and when it was last written: by the time of all runs together. What
    // an earlier version wrote was written in the order of its buckets, one after the other; its
    // hours are cut at whole hours of UTC, and what they are made of is not known any more.
    // An open run is one whose end was not added.
    R"(CREATE TABLE bucket (
         bucket_unix_seconds INTEGER PRIMARY KEY, seconds INTEGER NOT NULL,
         written_run_seconds INTEGER NOT NULL);
       INSERT INTO bucket SELECT at, length, sum(length) OVER (ORDER BY at) FROM (
         SELECT at, iif(at < (SELECT max(until_unix_seconds) FROM hours), 3600, 60) AS length
         FROM (SELECT bucket_unix_seconds AS at FROM usage UNION
               SELECT bucket_unix_seconds FROM board));
       CREATE INDEX bucket_by_age ON bucket (written_run_seconds);
       CREATE TABLE run (
         total_ms INTEGER NOT NULL, until_unix_ms INTEGER NOT NULL, open INTEGER NOT NULL);
       INSERT INTO run SELECT 1000 * ifnull(max(written_run_seconds), 0), 0, 0 FROM bucket;
       DROP TABLE hours;)",
    // What was saved, by method; no row: it is not known, as of all that earlier versions wrote.
    R"(CREATE TABLE usage_saving (
         bucket_unix_seconds INTEGER NOT NULL, tenant INTEGER NOT NULL REFERENCES tenant (id),
         method TEXT NOT NULL, energy_mj INTEGER NOT NULL, at_highest_mj INTEGER NOT NULL,
         sd_mj INTEGER NOT NULL,
         PRIMARY KEY (bucket_unix_seconds, tenant, method)) WITHOUT ROWID;
       CREATE TABLE unallocated_saving (
         bucket_unix_seconds INTEGER NOT NULL, gpu TEXT NOT NULL,
         method TEXT NOT NULL, energy_mj INTEGER NOT NULL, at_highest_mj INTEGER NOT NULL,
         sd_mj INTEGER NOT NULL,
         PRIMARY KEY (bucket_unix_seconds, gpu, method)) WITHOUT ROWID;)",
    // How much was assumption. What earlier versions wrote does not say, and counts as none.
    "ALTER TABLE usage ADD COLUMN prior_mj INTEGER NOT NULL DEFAULT 0",
    // The checksum is a sum like the figures, so that adding to rows and folding rows keep it
    // valid. Rows of earlier versions have no checksum.
    "ALTER TABLE usage ADD COLUMN checksum INTEGER; ALTER TABLE board ADD COLUMN checksum INTEGER",
    // The energy counter of each board at the end of the added time, for a run that has not ended.
    R"(CREATE TABLE meter (
         gpu TEXT PRIMARY KEY, counter_mj INTEGER NOT NULL, at_unix_ms INTEGER NOT NULL,
         checksum INTEGER NOT NULL) WITHOUT ROWID;)",
    // The watts that processes of a program drew, so that a new one does not begin from nothing.
    R"(CREATE TABLE program_watts (
         product TEXT NOT NULL, user TEXT NOT NULL, program TEXT NOT NULL, runs REAL NOT NULL,
         mean_w REAL NOT NULL, spread_w2 REAL NOT NULL, written_run_seconds INTEGER NOT NULL,
         PRIMARY KEY (product, user, program)) WITHOUT ROWID;)",
};
constexpr const char* kUsageReads[] = {
    "SELECT id, gpu, key, pid, process, user, container, name_space, pod, job, instance FROM "
    "tenant",
    "SELECT bucket_unix_seconds, tenant, base_mj, context_mj, dynamic_mj, sigma_mj, unsure_mj, "
    "time_ms, prior_mj, checksum FROM usage",
    "SELECT bucket_unix_seconds, gpu, board_mj, unallocated_mj, by_power_mj, time_ms, lost_ms, "
    "checksum FROM board",
    "SELECT bucket_unix_seconds, seconds, written_run_seconds FROM bucket",
    "SELECT total_ms, until_unix_ms, open FROM run",
    "SELECT bucket_unix_seconds, tenant, method, energy_mj, at_highest_mj, sd_mj FROM usage_saving",
    "SELECT bucket_unix_seconds, gpu, method, energy_mj, at_highest_mj, sd_mj FROM "
    "unallocated_saving",
    "SELECT gpu, counter_mj, at_unix_ms, checksum FROM meter",
    "SELECT product, user, program, runs, mean_w, spread_w2, written_run_seconds FROM "
    "program_watts",
};
constexpr SqliteSchema kUsageSchema{0x64727573, "energy by tenant", kUsageMigrations,
                                    kUsageReads};  // "drus"

constexpr int kUsageBusyMilliseconds = 200;  // of a thread of its own, and of readers
constexpr std::int64_t kMinute = 60, kQuarter = 900;

// Added to what the bucket has already.
constexpr const char* kAddUsage =
    "ON CONFLICT DO UPDATE SET base_mj = base_mj + excluded.base_mj, "
    "context_mj = context_mj + excluded.context_mj, "
    "dynamic_mj = dynamic_mj + excluded.dynamic_mj, sigma_mj = sigma_mj + excluded.sigma_mj, "
    "unsure_mj = unsure_mj + excluded.unsure_mj, time_ms = time_ms + excluded.time_ms, "
    "prior_mj = prior_mj + excluded.prior_mj, checksum = checksum + excluded.checksum";
constexpr const char* kAddBoard =
    "ON CONFLICT DO UPDATE SET board_mj = board_mj + excluded.board_mj, "
    "unallocated_mj = unallocated_mj + excluded.unallocated_mj, "
    "by_power_mj = by_power_mj + excluded.by_power_mj, time_ms = time_ms + excluded.time_ms, "
    "lost_ms = lost_ms + excluded.lost_ms, checksum = checksum + excluded.checksum";
constexpr const char* kAddSaving =
    "ON CONFLICT DO UPDATE SET energy_mj = energy_mj + excluded.energy_mj, "
    "at_highest_mj = at_highest_mj + excluded.at_highest_mj, sd_mj = sd_mj + excluded.sd_mj";
constexpr const char* kSumSaving = "sum(energy_mj), sum(at_highest_mj), sum(sd_mj)";

// Different odd factors: a change of any single digit changes the checksum.
constexpr const char* kUsageChecksum =
    "3 * base_mj + 5 * context_mj + 7 * dynamic_mj + 11 * sigma_mj + 13 * unsure_mj + 17 * time_ms "
    "+ 19 * prior_mj";
constexpr const char* kBoardChecksum =
    "3 * board_mj + 5 * unallocated_mj + 7 * by_power_mj + 11 * time_ms + 13 * lost_ms";
constexpr const char* kMeterChecksum = "3 * counter_mj + 5 * at_unix_ms";
constexpr const char* kSumChecksum = "iif(count(*) = count(checksum), sum(checksum), NULL)";

std::int64_t checksum_of(const UsageSums& sums) {
  return 3 * sums.base_mj + 5 * sums.context_mj + 7 * sums.dynamic_mj + 11 * sums.sigma_mj +
         13 * sums.unsure_mj + 17 * sums.time_ms + 19 * sums.prior_mj;
}
std::int64_t checksum_of(const UsageBoardSums& sums) {
  return 3 * sums.board_mj + 5 * sums.unallocated_mj + 7 * sums.by_power_mj + 11 * sums.time_ms +
         13 * sums.lost_ms;
}

std::int64_t unix_seconds(WallTime time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}
WallTime wall_time_of(std::int64_t unix_s) { return WallTime{std::chrono::seconds(unix_s)}; }

std::int64_t unix_ms(WallTime time) {
  return std::chrono::floor<std::chrono::milliseconds>(time).time_since_epoch().count();
}
std::int64_t milliseconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time).count();
}

// " AND gpu IN (?, ?)"; nothing for all.
std::string among(const std::vector<std::string>& gpus) {
  std::string out;
  for (std::size_t i = 0; i < gpus.size(); ++i) out += i == 0 ? " AND gpu IN (?" : ", ?";
  return out.empty() ? out : out + ")";
}

// A query whose conditions are kInTime and among(gpus), in that order.
SQLite::Statement select(SQLite::Database& sqlite, const std::string& query, WallTime from,
                         WallTime to, const std::vector<std::string>& gpus) {
  SQLite::Statement row(sqlite, query);
  RowBinder out{row};
  // A bucket begins on a whole second.
  const auto whole = [](WallTime time) {
    return std::int64_t{std::chrono::ceil<std::chrono::seconds>(time).time_since_epoch().count()};
  };
  out.all(whole(from), whole(to));
  for (const std::string& gpu : gpus) out.value(gpu);
  return row;
}

constexpr const char* kInTime = "bucket_unix_seconds >= ? AND bucket_unix_seconds < ?";

// How long the bucket of a row of `board` is. A file that only the first version wrote has hours
// until a time, and minutes from then on.
const char* length_of(SQLite::Database& sqlite) {
  const bool first_version = schema_version(sqlite) < 2;
  return first_version
             ? "iif(bucket_unix_seconds < (SELECT max(until_unix_seconds) FROM hours), 3600, 60)"
             : "ifnull((SELECT seconds FROM bucket WHERE bucket.bucket_unix_seconds = "
               "board.bucket_unix_seconds), 60)";
}

// What was saved: calls put(owner, method, sums) of each column `owner` and method in `table`.
template <class Owner, class F>
void read_savings(SQLite::Database& sqlite, const char* table, const char* owner, WallTime from,
                  WallTime to, const std::vector<std::string>& gpus, F&& put) {
  constexpr int kFirstWithSavings = 3;
  if (schema_version(sqlite) < kFirstWithSavings) return;  // a file that is only read
  SQLite::Statement row = select(sqlite,
                                 fmt::format("SELECT {1}, method, {2} FROM {0} WHERE {3}{4} GROUP "
                                             "BY {1}, method",
                                             table, owner, kSumSaving, kInTime, among(gpus)),
                                 from, to, gpus);
  while (row.executeStep()) {
    Owner whose{};
    std::string method;
    SavingSums sums;
    RowReader{row}.all(whose, method, sums.energy_mj, sums.at_highest_mj, sums.sd_mj);
    put(whose, method, sums);
  }
}

// The sum of it, also of a file that is only read and has none.
const char* prior_of(SQLite::Database& sqlite) {
  constexpr int kFirstWithPrior = 4;
  return schema_version(sqlite) < kFirstWithPrior ? "0" : "sum(prior_mj)";
}

std::vector<UsageRow> read_tenants(SQLite::Database& sqlite, WallTime from, WallTime to,
                                   const std::vector<std::string>& gpus) {
  std::vector<UsageRow> out;
  std::map<std::int64_t, std::size_t> place;  // of each tenant's id
  SQLite::Statement row =
      select(sqlite,
             fmt::format(
                 "SELECT gpu, key, {}, min(bucket_unix_seconds), sum(base_mj), sum(context_mj), "
                 "sum(dynamic_mj), sum(sigma_mj), sum(unsure_mj), sum(time_ms), {}, "
                 "tenant.id FROM usage JOIN tenant ON tenant.id = usage.tenant WHERE {}{} GROUP BY "
                 "tenant.id ORDER BY gpu, key, tenant.id",
                 kLabelColumns, prior_of(sqlite), kInTime, among(gpus)),
             from, to, gpus);
  while (row.executeStep()) {
    RowReader read{row};
    UsageRow& tenant = out.emplace_back();
    UsageSums& sums = tenant.sums;
    read.all(tenant.gpu, tenant.key, tenant.labels);
    tenant.bucket = wall_time_of(read.next<std::int64_t>());
    read.all(sums.base_mj, sums.context_mj, sums.dynamic_mj, sums.sigma_mj, sums.unsure_mj,
             sums.time_ms, sums.prior_mj);
    place[read.next<std::int64_t>()] = out.size() - 1;
  }
  // Each was added together with a row of `usage`.
  read_savings<std::int64_t>(
      sqlite, "usage_saving JOIN tenant ON tenant.id = usage_saving.tenant", "tenant", from, to,
      gpus, [&](std::int64_t id, const std::string& method, const SavingSums& saving) {
        if (const auto at = place.find(id); at != place.end())
          out[at->second].sums.savings[method] = saving;
      });
  return out;
}

void read_boards(SQLite::Database& sqlite, WallTime from, WallTime to,
                 const std::vector<std::string>& gpus, Usage& out) {
  SQLite::Statement board =
      select(sqlite,
             fmt::format("SELECT gpu, min(bucket_unix_seconds), max(bucket_unix_seconds + {}), "
                         "sum(board_mj), sum(unallocated_mj), sum(by_power_mj), sum(time_ms), "
                         "sum(lost_ms) FROM board WHERE {}{} GROUP BY gpu ORDER BY gpu",
                         length_of(sqlite), kInTime, among(gpus)),
             from, to, gpus);
  while (board.executeStep()) {
    UsageBoardRow& each = out.boards.emplace_back();
    UsageBoardSums& sums = each.sums;
    std::int64_t first = 0, last = 0;
    RowReader{board}.all(each.gpu, first, last, sums.board_mj, sums.unallocated_mj,
                         sums.by_power_mj, sums.time_ms, sums.lost_ms);
    each.bucket = wall_time_of(first);
    out.first = std::min(out.first.value_or(WallTime::max()), each.bucket);
    out.last = std::max(out.last.value_or(WallTime::min()), wall_time_of(last));
  }
  read_savings<std::string>(
      sqlite, "unallocated_saving", "gpu", from, to, gpus,
      [&](const std::string& gpu, const std::string& method, const SavingSums& saving) {
        for (UsageBoardRow& each : out.boards)
          if (each.gpu == gpu) each.sums.unallocated_savings[method] = saving;
      });
}

// Buckets that touch each other are one loss.
std::vector<UsageLoss> read_losses(SQLite::Database& sqlite, WallTime from, WallTime to,
                                   const std::vector<std::string>& gpus) {
  std::vector<UsageLoss> out;
  SQLite::Statement row =
      select(sqlite,
             fmt::format("SELECT bucket_unix_seconds, bucket_unix_seconds + {}, sum(lost_ms) FROM "
                         "board WHERE lost_ms > 0 AND {}{} GROUP BY bucket_unix_seconds ORDER BY "
                         "bucket_unix_seconds",
                         length_of(sqlite), kInTime, among(gpus)),
             from, to, gpus);
  while (row.executeStep()) {
    std::int64_t from_s = 0, to_s = 0, lost_ms = 0;
    RowReader{row}.all(from_s, to_s, lost_ms);
    const UsageLoss loss{wall_time_of(from_s), wall_time_of(to_s), lost_ms};
    if (out.empty() || loss.from > out.back().to) {
      out.push_back(loss);
    } else {
      out.back().to = std::max(out.back().to, loss.to);
      out.back().lost_ms += loss.lost_ms;
    }
  }
  return out;
}

// Counts rows with a checksum that were changed since they were written.
std::int64_t count_broken(SQLite::Database& sqlite, WallTime from, WallTime to) {
  constexpr int kFirstWithChecksums = 5;
  if (schema_version(sqlite) < kFirstWithChecksums) return 0;  // read-only: not migrated
  std::int64_t out = 0;
  for (const auto& [table, checksum] :
       {std::pair{"usage", kUsageChecksum}, std::pair{"board", kBoardChecksum}}) {
    SQLite::Statement row = select(
        sqlite,
        fmt::format("SELECT count(*) FROM {} WHERE {} AND checksum IS NOT NULL AND checksum != {}",
                    table, kInTime, checksum),
        from, to, {});
    if (row.executeStep()) out += row.getColumn(0).getInt64();
  }
  return out;
}

Usage read_all(SQLite::Database& sqlite, WallTime from, WallTime to,
               const std::vector<std::string>& gpus) {
  Usage out;
  SQLite::Transaction one_moment(sqlite);
  out.tenants = read_tenants(sqlite, from, to, gpus);
  read_boards(sqlite, from, to, gpus, out);
  out.losses = read_losses(sqlite, from, to, gpus);
  out.broken_rows = count_broken(sqlite, from, to);
  return out;
}

// What is done in one transaction of a writer.
struct Accounts {
  SQLite::Database& sqlite;

  std::int64_t number(const char* what) { return sqlite.execAndGet(what).getInt64(); }

  std::int64_t id_of(const UsageRow& row) {
    SQLite::Statement known(
        sqlite,
        "SELECT id FROM tenant WHERE gpu = ? AND key = ? AND pid = ? AND process = ? AND user = ? "
        "AND container = ? AND name_space = ? AND pod = ? AND job = ? AND instance = ?");
    RowBinder{known}.all(row.gpu, row.key, row.labels);
    if (known.executeStep()) return known.getColumn(0).getInt64();
    execute(sqlite,
            fmt::format("INSERT INTO tenant (gpu, key, {}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        kLabelColumns),
            row.gpu, row.key, row.labels);
    return sqlite.getLastInsertRowid();
  }

  // Something was added to that bucket. Late for a minute that is a quarter already, as when the
  // time of day was set back, it joins that.
  void touch(std::int64_t bucket, std::int64_t now_run_s) {
    execute(sqlite,
            "INSERT INTO bucket VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET written_run_seconds = "
            "max(written_run_seconds, excluded.written_run_seconds)",
            bucket, kMinute, now_run_s);
  }

  template <class Owner>
  void add(const char* table, WallTime bucket, const Owner& owner, const UsageSavings& savings) {
    for (const auto& [method, sums] : savings)
      execute(sqlite, fmt::format("INSERT INTO {} VALUES (?, ?, ?, ?, ?, ?) {}", table, kAddSaving),
              unix_seconds(bucket), owner, method, sums.energy_mj, sums.at_highest_mj, sums.sd_mj);
  }

  void add(const UsageRow& row) {
    const std::int64_t tenant = id_of(row);
    const UsageSums& sums = row.sums;
    execute(sqlite,
            fmt::format("INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {}", kAddUsage),
            unix_seconds(row.bucket), tenant, sums.base_mj, sums.context_mj, sums.dynamic_mj,
            sums.sigma_mj, sums.unsure_mj, sums.time_ms, sums.prior_mj, checksum_of(sums));
    add("usage_saving", row.bucket, tenant, sums.savings);
  }

  void add(const UsageBoardRow& row) {
    const UsageBoardSums& sums = row.sums;
    execute(sqlite, fmt::format("INSERT INTO board VALUES (?, ?, ?, ?, ?, ?, ?, ?) {}", kAddBoard),
            unix_seconds(row.bucket), row.gpu, sums.board_mj, sums.unallocated_mj, sums.by_power_mj,
            sums.time_ms, sums.lost_ms, checksum_of(sums));
    add("unallocated_saving", row.bucket, row.gpu, sums.unallocated_savings);
  }

  void add(const UsageRows& rows) {
    const std::int64_t now_run_s = number("SELECT max(total_ms) FROM run") / 1000;
    std::set<std::int64_t> touched;
    for (const UsageRow& row : rows.tenants) add(row), touched.insert(unix_seconds(row.bucket));
    for (const UsageBoardRow& row : rows.boards) add(row), touched.insert(unix_seconds(row.bucket));
    for (const std::int64_t bucket : touched) touch(bucket, now_run_s);
  }

  void add(const std::string& gpu, const UsageCounter& counter) {
    if (!counter.counter_mj) {
      execute(sqlite, "DELETE FROM meter WHERE gpu = ?", gpu);
      return;
    }
    const std::int64_t mj = *counter.counter_mj, at = unix_ms(counter.at);
    execute(sqlite, "INSERT OR REPLACE INTO meter VALUES (?, ?, ?, ?)", gpu, mj, at,
            3 * mj + 5 * at);
  }

  // Energy of the board from the newest tick of a killed run to a reading at `now`; 0 if it is not
  // known.
  std::int64_t used_since(const std::string& gpu, std::int64_t counter_mj, Watts most,
                          WallTime now) {
    SQLite::Statement row(
        sqlite, fmt::format("SELECT counter_mj, at_unix_ms FROM meter WHERE gpu = ? AND checksum = "
                            "{}",
                            kMeterChecksum));
    RowBinder{row}.all(gpu);
    if (!row.executeStep()) return 0;
    std::int64_t before_mj = 0, at_ms = 0;
    RowReader{row}.all(before_mj, at_ms);
    const std::int64_t used = counter_mj - before_mj, passed_ms = unix_ms(now) - at_ms;
    if (used < 0 || passed_ms < 0 || passed_ms > milliseconds(UsageStore::kMostBetween)) return 0;
    constexpr double kCounterStep = 1000;  // ms: counters move in steps
    const double most_mj = most.value() * (static_cast<double>(passed_ms) + kCounterStep);
    return static_cast<double>(used) <= most_mj ? used : 0;
  }

  // What a run that was killed had not added: the clock may have gone back since.
  UsageRows lost_until(WallTime began, const std::vector<std::string>& gpus) {
    UsageRows out;
    if (number("SELECT max(open) FROM run") == 0) return out;
    const WallTime from{std::chrono::milliseconds(number("SELECT max(until_unix_ms) FROM run"))};
    const bool soon = began >= from && began <= from + UsageStore::kMostBetween;
    const WallTime to = soon ? began : from + UsageStore::kMostBetween;
    for (WallTime at = from; at < to;) {
      const WallTime end = std::min(to, usage_bucket(at) + kUsageBucket);
      for (const std::string& gpu : gpus)
        out.boards.push_back({usage_bucket(at), gpu, {.lost_ms = milliseconds(end - at)}});
      at = end;
    }
    return out;
  }

  // Makes quarters of the minutes that were written before then.
  void make_quarters(std::int64_t until_run_s) {
    const auto fold = [&](const char* table, const char* by, const char* sums, const char* add) {
      sqlite.exec(
          fmt::format("CREATE TEMP TABLE folded AS SELECT quarter, {1}, {2} FROM {0} JOIN "
                      "old USING (bucket_unix_seconds) GROUP BY quarter, {1}; "
                      "DELETE FROM {0} WHERE bucket_unix_seconds IN (SELECT "
                      "bucket_unix_seconds FROM old); "
                      "INSERT INTO {0} SELECT * FROM folded WHERE true {3}; "
                      "DROP TABLE folded",
                      table, by, sums, add));
    };
    sqlite.exec(fmt::format(
        "CREATE TEMP TABLE old AS SELECT bucket_unix_seconds, bucket_unix_seconds - "
        "((bucket_unix_seconds % {0}) + {0}) % {0} AS quarter, written_run_seconds FROM bucket "
        "WHERE written_run_seconds < {1} AND seconds = {2}",
        kQuarter, until_run_s, kMinute));
    fold("usage", "tenant",
         fmt::format("sum(base_mj), sum(context_mj), sum(dynamic_mj), sum(sigma_mj), "
                     "sum(unsure_mj), sum(time_ms), sum(prior_mj), {} AS checksum",
                     kSumChecksum)
             .c_str(),
         kAddUsage);
    fold("board", "gpu",
         fmt::format("sum(board_mj), sum(unallocated_mj), sum(by_power_mj), sum(time_ms), "
                     "sum(lost_ms), {} AS checksum",
                     kSumChecksum)
             .c_str(),
         kAddBoard);
    fold("usage_saving", "tenant, method", kSumSaving, kAddSaving);
    fold("unallocated_saving", "gpu, method", kSumSaving, kAddSaving);
    sqlite.exec(fmt::format(
        "DELETE FROM bucket WHERE bucket_unix_seconds IN (SELECT bucket_unix_seconds FROM old); "
        "INSERT INTO bucket SELECT quarter, {}, max(written_run_seconds) FROM old WHERE true GROUP "
        "BY quarter ON CONFLICT DO UPDATE SET seconds = max(seconds, excluded.seconds), "
        "written_run_seconds = max(written_run_seconds, excluded.written_run_seconds); "
        "DROP TABLE old",
        kQuarter));
  }

  void tidy(Duration keep) {
    const std::int64_t run_s = number("SELECT max(total_ms) FROM run") / 1000;
    const auto before = [&](Duration age) { return run_s - milliseconds(age) / 1000; };
    for (const char* table : {"usage", "board", "usage_saving", "unallocated_saving"})
      sqlite.exec(
          fmt::format("DELETE FROM {} WHERE bucket_unix_seconds IN (SELECT "
                      "bucket_unix_seconds FROM bucket WHERE written_run_seconds < {})",
                      table, before(keep)));
    for (const char* table : {"bucket", "program_watts"})
      sqlite.exec(
          fmt::format("DELETE FROM {} WHERE written_run_seconds < {}", table, before(keep)));
    make_quarters(before(UsageStore::kMinutesFor));
    sqlite.exec("DELETE FROM tenant WHERE id NOT IN (SELECT tenant FROM usage)");
  }
};

}  // namespace

void add_savings(UsageSavings& sum, const UsageSavings& more) {
  for (const auto& [method, sums] : more) sum[method].add(sums);
}

void UsageSums::add(const UsageSums& more) {
  base_mj += more.base_mj;
  context_mj += more.context_mj;
  dynamic_mj += more.dynamic_mj;
  sigma_mj += more.sigma_mj;
  unsure_mj += more.unsure_mj;
  prior_mj += more.prior_mj;
  time_ms += more.time_ms;
  add_savings(savings, more.savings);
}

void UsageBoardSums::add(const UsageBoardSums& more) {
  board_mj += more.board_mj;
  unallocated_mj += more.unallocated_mj;
  by_power_mj += more.by_power_mj;
  time_ms += more.time_ms;
  lost_ms += more.lost_ms;
  add_savings(unallocated_savings, more.unallocated_savings);
}

WallTime usage_bucket(WallTime time) { return std::chrono::floor<std::chrono::minutes>(time); }

UsageStore::UsageStore(std::string path, OnError on_error)
    : path_(std::move(path)),
      file_(std::make_unique<SqliteFile>(SqliteFile::Options{
          .path = path_,
          .schema = kUsageSchema,
          .busy_milliseconds = kUsageBusyMilliseconds,
          .cut_log = SqliteFile::CutLog::at_once,  // on the caller's thread, which may wait
          .on_error = std::move(on_error)})) {}
UsageStore::~UsageStore() = default;

Result<void> UsageStore::begin(WallTime now, std::vector<std::string> gpus) {
  begins_ = {now, std::move(gpus)};
  // Made when there is something to keep: until then the journal needs the room.
  if (is_missing(path_)) return {};
  return add({}, now, counted_);
}

Result<void> UsageStore::add(const UsageRows& rows, WallTime now, Duration ran) {
  bool killed = false;  // the run before was killed
  const auto done = file_->write([&](SQLite::Database& sqlite) {
    Accounts accounts{sqlite};
    // What there is of the run before: from here on the file tells of this one.
    if (begins_) {
      const UsageRows lost = accounts.lost_until(begins_->began, begins_->gpus);
      killed = !lost.empty();
      accounts.add(lost);
    }
    sqlite.exec(fmt::format("UPDATE run SET open = 1, until_unix_ms = {}, total_ms = total_ms + {}",
                            unix_ms(now), milliseconds(std::max(Duration{}, ran - counted_))));
    accounts.add(rows);
    for (const auto& [gpu, counter] : rows.counters) accounts.add(gpu, counter);
  });
  if (!done.ok()) return done.error();
  if (killed) resumed_ = {.began = begins_->began, .read = {}};
  begins_.reset();
  counted_ = std::max(counted_, ran);
  return {};
}

Result<void> UsageStore::resume(const std::string& gpu, std::optional<std::int64_t> counter_mj,
                                Watts most, WallTime now) {
  if (begins_ && !is_missing(path_)) TRY(add({}, begins_->began, counted_));
  if (!resumed_ || resumed_->read.contains(gpu)) return {};
  TRY(file_->write([&](SQLite::Database& sqlite) {
    Accounts accounts{sqlite};
    const Duration since = now - resumed_->began;
    const bool soon = since > Duration::zero() && since <= kMostBetween;
    UsageBoardRow row{usage_bucket(now), gpu, {.lost_ms = soon ? milliseconds(since) : 0}};
    if (counter_mj) row.sums.board_mj = accounts.used_since(gpu, *counter_mj, most, now);
    row.sums.unallocated_mj = row.sums.board_mj;
    accounts.add({.tenants = {}, .boards = {row}});
    accounts.add(gpu, UsageCounter{});
  }));
  resumed_->read.insert(gpu);
  return {};
}

Result<void> UsageStore::end() {
  resumed_.reset();
  if (begins_) return {};  // nothing of it was ever kept
  return file_->write(
      [](SQLite::Database& sqlite) { sqlite.exec("UPDATE run SET open = 0; DELETE FROM meter"); });
}

Result<void> UsageStore::tidy(Duration keep) {
  return file_->write([&](SQLite::Database& sqlite) { Accounts{sqlite}.tidy(keep); });
}

Result<void> UsageStore::keep(const ProgramsByProduct& changed) {
  return file_->write([&](SQLite::Database& sqlite) {
    for (const auto& [product, programs] : changed) {
      for (const ProgramWatts& one : programs)
        execute(sqlite,
                "INSERT OR REPLACE INTO program_watts SELECT ?, ?, ?, ?, ?, ?, max(total_ms) / "
                "1000 FROM run",
                product, one.id.user, one.id.program, one.runs, one.mean_w, one.spread_w2);
      execute(sqlite,
              "DELETE FROM program_watts WHERE product = ?1 AND (user, program) NOT IN (SELECT "
              "user, program FROM program_watts WHERE product = ?1 ORDER BY written_run_seconds "
              "DESC LIMIT ?2)",
              product, static_cast<std::int64_t>(kMostPrograms));
    }
  });
}

Result<ProgramsByProduct> UsageStore::programs() {
  if (is_missing(path_)) return ProgramsByProduct{};
  return file_->attempt(SqliteFile::Use::read, [&](SQLite::Database& sqlite) {
    ProgramsByProduct out;
    SQLite::Statement row(sqlite,
                          "SELECT product, user, program, runs, mean_w, spread_w2 FROM "
                          "program_watts ORDER BY written_run_seconds");
    while (row.executeStep()) {
      std::string product;
      ProgramWatts one;
      RowReader{row}.all(product, one.id.user, one.id.program, one.runs, one.mean_w, one.spread_w2);
      out[product].push_back(std::move(one));
    }
    return out;
  });
}

Result<Usage> read_usage(const std::string& path, WallTime from, WallTime to,
                         const std::vector<std::string>& gpus) {
  if (is_missing(path))
    return Error{Errc::not_found, fmt::format("'{}': no energy is kept yet", path)};
  if (::access(path.c_str(), R_OK) != 0)
    return Error{Errc::no_permission, fmt::format("'{}': may not be read", path)};
  return guarded(path, [&] {
    SQLite::Database sqlite(path, SQLite::OPEN_READONLY, kUsageBusyMilliseconds);
    check_kept(sqlite, kUsageSchema);
    return read_all(sqlite, from, to, gpus);
  });
}

}  // namespace derate
