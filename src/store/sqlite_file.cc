#include "store/sqlite_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

bool is_denied(int number) { return number == EACCES || number == EPERM || number == EROFS; }

// Every statement of ours fits our schema: one that does not was given a file whose version is
// another than its tables'.
template <class F>
void as_broken(const SqliteSchema& schema, F&& work) {
  try {
    work();
  } catch (const SQLite::Exception& problem) {
    if (problem.getErrorCode() != SQLITE_ERROR) throw;
    throw SQLite::Exception(fmt::format("not {}: {}", schema.what, problem.what()), SQLITE_NOTADB);
  }
}

bool has_tables(SQLite::Database& database) {
  return database.execAndGet("SELECT count(*) FROM sqlite_master").getInt() > 0;
}

// A new file becomes ours together with its first tables: who reads it meanwhile sees all or
// nothing.
void take_versions(SQLite::Database& database, const SqliteSchema& schema, bool is_new) {
  for (int i = schema_version(database); i < static_cast<int>(schema.migrations.size()); ++i) {
    SQLite::Transaction all(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Another process may have been faster.
    if (schema_version(database) > i) continue;
    if (is_new) database.exec(fmt::format("PRAGMA application_id = {}", schema.application_id));
    database.exec(schema.migrations[static_cast<std::size_t>(i)]);
    database.exec(fmt::format("PRAGMA user_version = {}", i + 1));
    all.commit();
  }
}

// "20261122T101500Z": when the file was last written.
std::string time_of(const std::string& path) {
  struct ::stat found {};
  std::tm day{};
  if (::stat(path.c_str(), &found) != 0 || ::gmtime_r(&found.st_mtime, &day) == nullptr) return "";
  return fmt::format("{:04}{:02}{:02}T{:02}{:02}{:02}Z", day.tm_year + 1900, day.tm_mon + 1,
                     day.tm_mday, day.tm_hour, day.tm_min, day.tm_sec);
}

// A name for a file that is set aside. Of too many the newest goes: where no file is the reason,
// what is worth keeping is in the first.
std::string aside_name(const std::string& path) {
  const std::string stem = path + ".aside-";
  std::vector<std::string> there;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(fs::path(path).parent_path(), failed))
    if (entry.path().string().starts_with(stem) && !entry.path().string().ends_with("-wal"))
      there.push_back(entry.path().string());
  std::sort(there.begin(), there.end());
  for (; there.size() >= SqliteFile::kMostAsides; there.pop_back())
    for (const char* ending : {"", "-wal"}) fs::remove(there.back() + ending, failed);
  std::string out = stem + time_of(path);
  for (int i = 2; fs::exists(out, failed); ++i)
    out = fmt::format("{}{}-{}", stem, time_of(path), i);
  return out;
}

void checkpoint(SQLite::Database& database, const char* how) {
  database.execAndGet(fmt::format("PRAGMA wal_checkpoint({})", how));
}

// The writer goes on meanwhile: each time there is less that came while the last was moved. What
// `firmly` cuts is little then, and gives up before a writer would.
void cut_beside(const std::string& path, bool firmly) {
  try {
    SQLite::Database own(path, SQLite::OPEN_READWRITE, 1);
    for (int i = 0; i < 3; ++i) checkpoint(own, "PASSIVE");
    if (firmly && log_bytes(path) > 4 * kMostLogBytes) checkpoint(own, "TRUNCATE");
  } catch (const SQLite::Exception&) {  // the next one moves both
  }
}

}  // namespace

int schema_version(SQLite::Database& database) {
  return database.execAndGet("PRAGMA user_version").getInt();
}

namespace {

void check_version(SQLite::Database& database, const SqliteSchema& schema) {
  const int version = schema_version(database);
  if (version < 0)
    throw SQLite::Exception(fmt::format("not {}: version {}", schema.what, version), SQLITE_NOTADB);
  if (version > static_cast<int>(schema.migrations.size()))
    throw SQLite::Exception("written by a newer version of derate", SQLITE_SCHEMA);
}

}  // namespace

void check_schema(SQLite::Database& database, const SqliteSchema& schema) {
  if (database.execAndGet("PRAGMA application_id").getInt() != schema.application_id)
    throw SQLite::Exception(fmt::format("not {}", schema.what), SQLITE_NOTADB);
  check_version(database, schema);
}

void check_kept(SQLite::Database& database, const SqliteSchema& schema) {
  if (!has_tables(database)) throw SQLite::Exception("nothing is kept yet", SQLITE_EMPTY);
  check_schema(database, schema);
}

void migrate(SQLite::Database& database, const SqliteSchema& schema) {
  const bool is_new = !has_tables(database);
  // Before anything is written.
  if (is_new && schema.shrinks) database.exec("PRAGMA auto_vacuum = INCREMENTAL");
  if (is_new)
    check_version(database, schema);
  else
    check_schema(database, schema);
  as_broken(schema, [&] {
    take_versions(database, schema, is_new);
    for (const char* read : schema.reads) SQLite::Statement(database, read);
  });
}

void make_file(const std::string& path, ::mode_t mode) {
  const auto folder = make_folders(std::filesystem::path(path).parent_path());
  if (!folder.ok() && folder.error().code == Errc::no_permission)
    throw SQLite::Exception(folder.error().message, SQLITE_PERM);
  const UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if ((!file.valid() && is_denied(errno)) ||
      (::access(path.c_str(), R_OK | W_OK) != 0 && is_denied(errno)))
    throw SQLite::Exception("no permission", SQLITE_PERM);
}

bool has_moved(SQLite::Database& database) {
  int out = 0;
  ::sqlite3_file_control(database.getHandle(), "main", SQLITE_FCNTL_HAS_MOVED, &out);
  return out != 0;
}

bool is_missing(const std::string& path) {
  return ::access(path.c_str(), F_OK) != 0 && errno == ENOENT;
}

Error sqlite_error(const SQLite::Exception& problem, const std::string& path) {
  const int code = problem.getErrorCode();
  const bool bad = code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_SCHEMA;
  const Errc kind = bad                                              ? Errc::bad_data
                    : code == SQLITE_EMPTY                           ? Errc::not_found
                    : code == SQLITE_READONLY || code == SQLITE_PERM ? Errc::no_permission
                    : code == SQLITE_BUSY || code == SQLITE_LOCKED   ? Errc::busy
                                                                     : Errc::io;
  return {kind, fmt::format("'{}': {}", path, problem.what())};
}

std::uintmax_t log_bytes(const std::string& path) {
  std::error_code failed;
  const auto out = fs::file_size(path + "-wal", failed);
  return failed ? 0 : out;
}

// --- openings that came to no end ----------------------------------------------------------------

// Each opening is a line: one that was not written whole, as on a full disk, is not counted. Who
// opens the file holds the lock, which ends with its process.
OpeningMark::OpeningMark(const std::string& path) : path_(path + ".opening") {
  file_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                          S_IRUSR | S_IWUSR));
  struct ::stat found {};
  const bool ours = file_.valid() && ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 &&
                    ::fstat(file_.get(), &found) == 0 && S_ISREG(found.st_mode) &&
                    found.st_nlink > 0;  // 0: another's, who has just done
  if (!ours) {
    file_ = {};
    return;
  }
  char text[4096];
  const ::ssize_t size = ::pread(file_.get(), text, sizeof text, 0);
  crashes_ = size > 0 ? static_cast<int>(std::count(text, text + size, '\n')) : 0;
  count_this();
}

void OpeningMark::count_this() {
  const std::string line = fmt::format("opened by process {}\n", ::getpid());
  if (::write(file_.get(), line.data(), line.size()) < 0) return;  // then it is not counted
}

void OpeningMark::begin_anew() {
  crashes_ = 0;
  if (!file_.valid()) return;
  if (::ftruncate(file_.get(), 0) == 0) count_this();
}

void OpeningMark::end() {
  if (!file_.valid()) return;
  // Emptied, too: who has opened it a moment ago may read it yet.
  const bool emptied = ::ftruncate(file_.get(), 0) == 0;
  if (::unlink(path_.c_str()) != 0 && !emptied) return;  // nothing more can be done
  file_ = {};
}

// --- a file that is written for months -----------------------------------------------------------

void SqliteFile::close() {
  if (database_ != nullptr && has_moved(*database_)) another_ = true;
  database_.reset();
}

void SqliteFile::distrust() {
  checked_.reset();
  close();
}

// Nothing is there: {0, 0}.
std::pair<std::uint64_t, std::uint64_t> SqliteFile::id_of_file() const {
  struct ::stat found {};
  if (::stat(options_.path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino};
}

void SqliteFile::update_generation() {
  const auto file = id_of_file();
  if (file == std::pair<std::uint64_t, std::uint64_t>{}) return;
  if (std::exchange(another_, false) || file != file_) ++generation_;
  file_ = file;
}

void SqliteFile::prepare(SQLite::Database& made) {
  made.setBusyTimeout(options_.busy_milliseconds);
  migrate(made, options_.schema);
  // A write does not wait for the disk, and a power cut costs the newest rows, not the file.
  made.exec(
      fmt::format("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; "
                  "PRAGMA wal_autocheckpoint = 0; PRAGMA journal_size_limit = {}; "
                  "PRAGMA foreign_keys = ON; PRAGMA cache_size = -{}",
                  kMostLogBytes, options_.cache_kibibytes));
  const auto file = id_of_file();
  if (checked_ == file) return;
  if (const std::string found = made.execAndGet("PRAGMA quick_check(1)").getString(); found != "ok")
    throw SQLite::Exception(found, SQLITE_CORRUPT);
  checked_ = file;
}

void SqliteFile::open(Use use) {
  if (database_ != nullptr && !has_moved(*database_)) return;
  close();
  if (use != Use::look) {
    make_file(options_.path, options_.mode);
    if (!opening_) opening_.emplace(options_.path);
    if (opening_->crashes() >= kMostCrashes) set_aside_crashed();
  }
  auto made = std::make_unique<SQLite::Database>(options_.path, SQLite::OPEN_READWRITE);
  prepare(*made);
  database_ = std::move(made);
  update_generation();
}

void SqliteFile::done() {
  if (opening_) opening_->end();
  opening_.reset();
  mind_log();
}

void SqliteFile::check_log(Use use) {
  if (use != Use::write || log_bytes(options_.path) < kMostLogBytesWithReader) return;
  cut_at_ = kMostLogBytes;
  mind_log();
  if (log_bytes(options_.path) >= kMostLogBytesWithReader)
    throw SQLite::Exception(fmt::format("its log has {} MiB and cannot be cut: another program has "
                                        "been reading the file for long",
                                        kMostLogBytesWithReader >> 20),
                            SQLITE_BUSY);
}

// Moving the log into the file waits for the disk. Where that was of no use, as a reader keeps it,
// it is tried again when as much has come again.
void SqliteFile::mind_log() {
  const std::uintmax_t bytes = log_bytes(options_.path);
  if (bytes <= kMostLogBytes) cut_at_ = kMostLogBytes;
  if (bytes <= cut_at_) return;
  if (cutting_.valid() && cutting_.wait_for(Duration{}) != std::future_status::ready) return;
  cut_at_ = bytes + kMostLogBytes;
  if (options_.cut_log == CutLog::at_once) {
    try {
      checkpoint(*database_, "TRUNCATE");
    } catch (const SQLite::Exception&) {  // as above
    }
    return;
  }
  cutting_ =
      std::async(std::launch::async, cut_beside, options_.path, options_.cut_log == CutLog::firmly);
}

// Empty: it was set aside, and is to be tried again.
std::optional<Error> SqliteFile::failed(const SQLite::Exception& problem, bool repair) {
  Error error = sqlite_error(problem, options_.path);
  const bool broken = error.code == Errc::bad_data && problem.getErrorCode() != SQLITE_SCHEMA;
  if (broken) checked_.reset();
  if (repair && broken) {
    // Another process may have done it already.
    const bool moved = database_ != nullptr && has_moved(*database_);
    close();
    if (moved || set_aside(error.message)) {
      if (opening_) opening_->begin_anew();
      return std::nullopt;
    }
  }
  if (opening_) opening_->end();
  opening_.reset();
  if (error.code != Errc::busy && problem.getErrorCode() != SQLITE_CONSTRAINT) close();
  return error;
}

// Of a file that can be looked at later, with the log that belongs to it. The log first: without
// its file it would be taken for a new one's.
bool SqliteFile::set_aside(const std::string& why) {
  const std::string& path = options_.path;
  std::error_code failed;
  if (!fs::is_regular_file(fs::symlink_status(path, failed))) return false;
  const std::string name = aside_name(path);
  if (fs::exists(path + "-wal", failed)) fs::rename(path + "-wal", name + "-wal", failed);
  if (failed) return false;
  fs::rename(path, name, failed);
  if (failed) {
    std::error_code ignored;
    fs::rename(name + "-wal", path + "-wal", ignored);
    return false;
  }
  fs::remove(path + "-shm", failed);
  another_ = true;
  if (options_.on_error)
    options_.on_error(
        {Errc::bad_data, fmt::format("{}: set aside as '{}', begun anew", why, name)});
  return true;
}

void SqliteFile::set_aside_crashed() {
  if (!set_aside(fmt::format("'{}': {} processes in a row ended while they opened and read it",
                             options_.path, opening_->crashes())))
    return;
  opening_->begin_anew();
  make_file(options_.path, options_.mode);
}

}  // namespace derate
