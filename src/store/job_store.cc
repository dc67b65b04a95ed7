#include "store/job_store.h"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
#include <unistd.h>

#include <limits>

#include "store/sqlite_file.h"
#include "store/sqlite_rows.h"

namespace derate {
namespace {

constexpr const char* kJobMigrations[] = {
    R"(CREATE TABLE job (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         scheduler TEXT NOT NULL, cluster TEXT NOT NULL, job TEXT NOT NULL, array TEXT NOT NULL,
         user TEXT NOT NULL, account TEXT NOT NULL, partition TEXT NOT NULL, node TEXT NOT NULL,
         uid INTEGER NOT NULL, begun_unix_nanoseconds INTEGER NOT NULL,
         ended_unix_nanoseconds INTEGER NOT NULL, energy_joules REAL, document TEXT NOT NULL);
       CREATE INDEX job_by_end ON job (ended_unix_nanoseconds);)",
};
constexpr const char* kJobRowColumns =
    "scheduler, cluster, job, array, user, account, partition, node, uid, begun_unix_nanoseconds, "
    "ended_unix_nanoseconds, energy_joules, document";
constexpr const char* kJobReads[] = {
    "SELECT id, scheduler, cluster, job, array, user, account, partition, node, uid, "
    "begun_unix_nanoseconds, ended_unix_nanoseconds, energy_joules, document FROM job",
};
constexpr SqliteSchema kJobSchema{0x64726a62, "the energy of jobs", kJobMigrations,
                                  kJobReads};  // "drjb"
constexpr int kJobBusyMilliseconds = 200;      // of a thread of its own, and of readers

// Every column in kJobRowColumns' order. T is JobRow or const JobRow.
template <class T, class V>
void visit_job_row(T& row, V&& visitor) {
  visitor.all(row.scheduler, row.cluster, row.job, row.array, row.user, row.account, row.partition,
              row.node, row.uid, row.begun, row.ended, row.energy_joules, row.document);
}

}  // namespace

JobStore::JobStore(std::string path, OnError on_error, std::int64_t most)
    : file_(std::make_unique<SqliteFile>(SqliteFile::Options{
          .path = std::move(path),
          .schema = kJobSchema,
          .busy_milliseconds = kJobBusyMilliseconds,
          .cut_log = SqliteFile::CutLog::at_once,  // on the caller's thread, which may wait
          .on_error = std::move(on_error)})),
      most_(most) {}
JobStore::~JobStore() = default;

Result<void> JobStore::add(const JobRow& row) {
  return file_->write([&](SQLite::Database& sqlite) {
    SQLite::Statement insert(
        sqlite,
        fmt::format("INSERT INTO job ({}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)", kJobRowColumns));
    visit_job_row(row, RowBinder{insert});
    insert.exec();
    execute(sqlite, "DELETE FROM job WHERE id <= (SELECT max(id) FROM job) - ?", most_);
  });
}

Result<std::vector<JobRow>> read_jobs(const std::string& path, const JobFilter& filter) {
  if (is_missing(path))
    return Error{Errc::not_found, fmt::format("'{}': no job is kept yet", path)};
  if (::access(path.c_str(), R_OK) != 0)
    return Error{Errc::no_permission, fmt::format("'{}': may not be read", path)};
  return guarded(path, [&] {
    SQLite::Database sqlite(path, SQLite::OPEN_READONLY, kJobBusyMilliseconds);
    check_kept(sqlite, kJobSchema);
    SQLite::Statement row(
        sqlite,
        fmt::format("SELECT {} FROM job WHERE ended_unix_nanoseconds >= ?1 AND "
                    "ended_unix_nanoseconds < ?2 AND (?3 = '' OR job = ?3) AND (?4 = '' OR user = "
                    "?4) AND (?5 = '' OR account = ?5) ORDER BY ended_unix_nanoseconds, id",
                    kJobRowColumns));
    RowBinder{row}.all(filter.from.value_or(WallTime::min()), filter.to.value_or(WallTime::max()),
                       filter.job, filter.user, filter.account);
    std::vector<JobRow> out;
    while (row.executeStep()) visit_job_row(out.emplace_back(), RowReader{row});
    return out;
  });
}

}  // namespace derate
