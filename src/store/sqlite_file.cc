#include "store/sqlite_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

bool is_denied(int number) { return number == EACCES || number == EPERM || number == EROFS; }

}  // namespace

void check_schema(SQLite::Database& database, const SqliteSchema& schema) {
  if (database.execAndGet("PRAGMA application_id").getInt() != schema.application_id)
    throw SQLite::Exception(fmt::format("not {}", schema.what), SQLITE_NOTADB);
  if (database.execAndGet("PRAGMA user_version").getInt() >
      static_cast<int>(schema.migrations.size()))
    throw SQLite::Exception("written by a newer version of derate", SQLITE_SCHEMA);
}

void migrate(SQLite::Database& database, const SqliteSchema& schema) {
  if (database.execAndGet("SELECT count(*) FROM sqlite_master").getInt() == 0)
    database.exec(fmt::format("PRAGMA application_id = {}", schema.application_id));
  check_schema(database, schema);
  const int version = database.execAndGet("PRAGMA user_version").getInt();
  for (int i = version; i < static_cast<int>(schema.migrations.size()); ++i) {
    SQLite::Transaction all(database, SQLite::TransactionBehavior::IMMEDIATE);
    // Another process may have been faster.
    if (database.execAndGet("PRAGMA user_version").getInt() > i) continue;
    database.exec(schema.migrations[static_cast<std::size_t>(i)]);
    database.exec(fmt::format("PRAGMA user_version = {}", i + 1));
    all.commit();
  }
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

Error sqlite_error(const SQLite::Exception& problem, const std::string& path) {
  const int code = problem.getErrorCode();
  const bool bad = code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_SCHEMA;
  const Errc kind = bad                                              ? Errc::bad_data
                    : code == SQLITE_READONLY || code == SQLITE_PERM ? Errc::no_permission
                    : code == SQLITE_BUSY || code == SQLITE_LOCKED   ? Errc::busy
                                                                     : Errc::io;
  return {kind, fmt::format("'{}': {}", path, problem.what())};
}

}  // namespace derate
