// What the SQLite files of this folder share: whose file it is, its migrations, its errors.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

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

// Whether the file was deleted or renamed: what is written to it is lost.
bool has_moved(SQLite::Database& database);

// Errors: bad_data (not such a file, or a broken one), no_permission, busy, io.
Error sqlite_error(const SQLite::Exception& problem, const std::string& path);

}  // namespace derate
