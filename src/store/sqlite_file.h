// What the SQLite files of this folder share: whose file it is, its migrations, its errors.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>
#include <sys/types.h>

#include <span>
#include <string>

#include "base/result.h"

namespace derate {

struct SqliteSchema {
  int application_id;  // SQLite's mark of whose file it is
  const char* what;    // "the results of an experiment"
  // Each takes the schema one version further; what is released is never changed.
  std::span<const char* const> migrations;
};

// Both throw SQLite::Exception: SQLITE_NOTADB for a file that is not ours, SQLITE_SCHEMA for one
// that a newer version of Derate wrote.
void check_schema(SQLite::Database& database, const SqliteSchema& schema);
// A new file is made ours.
void migrate(SQLite::Database& database, const SqliteSchema& schema);

// Makes an empty file, and its folder, where there is none: with its rights, so that SQLite's files
// beside it have them, too. Throws SQLite::Exception, SQLITE_PERM, for a right that is missing,
// which SQLite itself would not say.
void make_file(const std::string& path, ::mode_t mode);

// Whether the file was deleted or renamed: what is written to it is lost.
bool has_moved(SQLite::Database& database);

// Errors: bad_data (not such a file, or a broken one), no_permission, busy, io.
Error sqlite_error(const SQLite::Exception& problem, const std::string& path);

}  // namespace derate
