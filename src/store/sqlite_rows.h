// Values of a row of SQLite, bound to a statement's parameters or read from its columns one after
// the other. A time is a count of nanoseconds since 1970, an empty value is NULL; labels are the
// columns of kLabelColumns.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/units.h"
#include "core/tenant_labels.h"

namespace derate {

inline constexpr const char* kLabelColumns =
    "pid, process, user, container, name_space, pod, job, instance";
inline constexpr std::int64_t kNoPid = -1;  // in a UNIQUE, where NULLs are never equal

// Bytes that are no text.
struct Blob {
  std::string bytes;
};

struct RowBinder {
  SQLite::Statement& row;
  int at = 0;  // parameters bound so far

  template <class... T>
  RowBinder& all(const T&... values) {
    return (value(values), ...), *this;
  }
  void value(double each) { row.bind(++at, each); }
  void value(int each) { row.bind(++at, each); }
  void value(bool each) { row.bind(++at, each ? 1 : 0); }
  void value(std::uint32_t each) { row.bind(++at, static_cast<std::int64_t>(each)); }
  void value(std::int64_t each) { row.bind(++at, each); }
  void value(const std::string& each) { row.bind(++at, each); }
  void value(WallTime each) { value(std::int64_t{each.time_since_epoch().count()}); }
  void value(const TenantLabels& each) {
    all(each.pid.value_or(kNoPid), each.process, each.user, each.container, each.name_space,
        each.pod, each.job, each.instance);
  }
  template <class T>
  void value(const std::optional<T>& each) {
    if (each)
      value(*each);
    else
      row.bind(++at);
  }
  void value(const Blob& each) {
    row.bind(++at, each.bytes.data(), static_cast<int>(each.bytes.size()));
  }
};

// Runs a statement once, with these parameters: how many rows it has changed.
template <class... T>
int execute(SQLite::Database& sqlite, const std::string& statement, const T&... values) {
  SQLite::Statement row(sqlite, statement);
  RowBinder{row}.all(values...);
  return row.exec();
}

struct RowReader {
  SQLite::Statement& row;
  int at = 0;  // columns read so far

  template <class... T>
  RowReader& all(T&... values) {
    return (value(values), ...), *this;
  }
  template <class T>
  T next() {
    T out{};
    value(out);
    return out;
  }
  SQLite::Column column() { return row.getColumn(at++); }
  void value(double& each) { each = column().getDouble(); }
  void value(int& each) { each = column().getInt(); }
  void value(bool& each) { each = column().getInt() != 0; }
  void value(std::uint32_t& each) { each = static_cast<std::uint32_t>(column().getInt64()); }
  void value(std::int64_t& each) { each = column().getInt64(); }
  void value(std::string& each) { each = column().getString(); }
  void value(WallTime& each) { each = WallTime{Duration(column().getInt64())}; }
  void value(TenantLabels& each) {
    std::int64_t pid = kNoPid;
    all(pid, each.process, each.user, each.container, each.name_space, each.pod, each.job,
        each.instance);
    if (pid != kNoPid) each.pid = pid;
  }
  template <class T>
  void value(std::optional<T>& each) {
    if (row.isColumnNull(at))
      ++at;
    else
      value(each.emplace());
  }
};

}  // namespace derate
