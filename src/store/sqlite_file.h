// SQLite files as the stores of this folder share them: application id, schema migrations and
// errors; opening files that are written for months, cutting their logs, and setting broken ones
// aside.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "base/units.h"

namespace derate {

struct SqliteSchema {
  int application_id;  // SQLite's mark of whose file it is
  const char* what;    // "the results of an experiment"
  // Each takes the schema one version further; what is released is never changed.
  std::span<const char* const> migrations;
  // Statements that a file of the newest version can run: one that cannot is broken.
  std::span<const char* const> reads = {};
  // PRAGMA incremental_vacuum makes the file smaller: only of one that was made so.
  bool shrinks = false;
};

// How many of its migrations a file has.
int schema_version(SQLite::Database& database);
// Both throw SQLite::Exception: SQLITE_NOTADB for a file that is not ours or whose version no
// Derate ever wrote, SQLITE_SCHEMA for one that a newer version of Derate wrote.
void check_schema(SQLite::Database& database, const SqliteSchema& schema);
// The same for who reads beside a writer; SQLITE_EMPTY for a file that is being made.
void check_kept(SQLite::Database& database, const SqliteSchema& schema);
// A new file is made ours.
void migrate(SQLite::Database& database, const SqliteSchema& schema);

// Makes an empty file, and its folder, where there is none: with its rights, so that SQLite's files
// beside it have them, too. Throws SQLite::Exception, SQLITE_PERM, for a right that is missing,
// which SQLite itself would not say.
void make_file(const std::string& path, ::mode_t mode);

// Whether the file was deleted or renamed: what is written to it is lost.
bool has_moved(SQLite::Database& database);

// Nothing is there, and nobody is kept from seeing it.
bool is_missing(const std::string& path);

// Errors: bad_data (not such a file, or a broken one), not_found (an empty one), no_permission,
// busy, io.
Error sqlite_error(const SQLite::Exception& problem, const std::string& path);
// What work() gives. Exceptions end here. Errors: as sqlite_error().
template <class F>
auto guarded(const std::string& path, F&& work) -> Result<decltype(work())> {
  try {
    if constexpr (std::is_void_v<decltype(work())>) {
      work();
      return {};
    } else {
      return work();
    }
  } catch (const SQLite::Exception& problem) {
    return sqlite_error(problem, path);
  }
}

// A write-ahead log that is longer is moved into its file and cut.
inline constexpr std::uintmax_t kMostLogBytes = 4u << 20;
// SQLite can cut no log while somebody reads on and on from before it was moved. From here on
// nothing is written until it could be: what waits is bounded by who writes, the disk is not.
inline constexpr std::uintmax_t kMostLogBytesWithReader = 64u << 20;
std::uintmax_t log_bytes(const std::string& path);

// That a file is being opened and read, on disk beside it as PATH.opening: a process that dies of
// what stands in it leaves the mark to the next one. Of processes that open the file at the same
// time only the first is counted. Where no mark can be made nothing is counted.
class OpeningMark {
 public:
  explicit OpeningMark(const std::string& path);
  OpeningMark(const OpeningMark&) = delete;
  OpeningMark& operator=(const OpeningMark&) = delete;

  // Openings before this one that came to no end, in a row.
  int crashes() const { return crashes_; }
  // The file is another: none of them was of it.
  void begin_anew();
  // It was opened and read, or could not be; both are no crash.
  void end();

 private:
  void count_this();

  std::string path_;
  UniqueFd file_;
  int crashes_ = 0;
};

// One file that is written for months, by one thread; opened when it is first needed.
class SqliteFile {
 public:
  // After so many crashes in a row while it was opened and read a file is set aside. An operator
  // who kills a start costs nothing: it would have to happen twice, within the milliseconds that
  // this takes, and the file is kept.
  static constexpr int kMostCrashes = 2;
  // Of files that were set aside; the newest makes room then.
  static constexpr std::size_t kMostAsides = 8;

  // look: nothing is made or set aside, as for people.
  enum class Use : std::uint8_t { look, read, write };
  // beside: on a thread of its own, never in a writer's way; the first write that finds all of the
  // log moved begins it anew. firmly: the same, but writers are busy for a moment where four times
  // as much has come, as none of their pauses is long enough. at_once: on the caller's thread.
  enum class CutLog : std::uint8_t { beside, firmly, at_once };
  struct Options {
    std::string path;
    const SqliteSchema& schema;  // outlives it
    ::mode_t mode = 0640;
    int busy_milliseconds = 0;   // that a call waits for another process at most
    int cache_kibibytes = 2000;  // of the file, in memory
    CutLog cut_log = CutLog::beside;
    // That a file was set aside (bad_data).
    std::function<void(const Error&)> on_error = {};
  };

  explicit SqliteFile(Options options) : options_(std::move(options)) {}
  SqliteFile(const SqliteFile&) = delete;
  SqliteFile& operator=(const SqliteFile&) = delete;

  // Runs work(SQLite::Database&) on the file, opened. Exceptions end here. A file that is broken,
  // or of which processes crashed, is set aside as PATH.aside-TIME, by when it was last written,
  // and the same is done with a new one. Errors: as sqlite_error().
  template <class F>
  auto attempt(Use use, F&& work) -> Result<decltype(work(std::declval<SQLite::Database&>()))>;

  // The same, to write: all of it or nothing.
  template <class F>
  auto write(F&& work) -> Result<decltype(work(std::declval<SQLite::Database&>()))> {
    return attempt(Use::write, [&](SQLite::Database& sqlite) {
      SQLite::Transaction all(sqlite, SQLite::TransactionBehavior::IMMEDIATE);
      if constexpr (std::is_void_v<decltype(work(sqlite))>) {
        work(sqlite);
        all.commit();
      } else {
        auto out = work(sqlite);
        all.commit();
        return out;
      }
    });
  }

  bool is_open() const { return database_ != nullptr; }
  // Closes the file; the next use opens it anew and reads it as a whole, as the first does.
  void distrust();
  // Raised when another file was begun.
  int generation() const { return generation_; }

 private:
  void open(Use use);
  void prepare(SQLite::Database& made);
  void close();
  std::pair<std::uint64_t, std::uint64_t> id_of_file() const;
  void update_generation();
  void check_log(Use use);
  void mind_log();
  void done();
  std::optional<Error> failed(const SQLite::Exception& problem, bool repair);
  bool set_aside(const std::string& why);
  void set_aside_crashed();

  Options options_;
  std::unique_ptr<SQLite::Database> database_;
  std::optional<OpeningMark> opening_;              // until it was read
  std::pair<std::uint64_t, std::uint64_t> file_{};  // device and inode of the one last opened
  bool another_ = true;                             // than the one last opened, as far as is known
  // The one that was read as a whole and found good: where it is opened again, as after each write
  // that found the disk full, that is not done again.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> checked_;
  int generation_ = 0;
  std::uintmax_t cut_at_ = kMostLogBytes;
  std::future<void> cutting_;
};

template <class F>
auto SqliteFile::attempt(Use use, F&& work)
    -> Result<decltype(work(std::declval<SQLite::Database&>()))> {
  for (bool repair = use != Use::look;; repair = false) {
    try {
      open(use);
      check_log(use);
      if constexpr (std::is_void_v<decltype(work(*database_))>) {
        work(*database_);
        done();
        return {};
      } else {
        auto out = work(*database_);
        done();
        return out;
      }
    } catch (const SQLite::Exception& problem) {
      if (auto error = failed(problem, repair)) return *std::move(error);
    }
  }
}

}  // namespace derate
