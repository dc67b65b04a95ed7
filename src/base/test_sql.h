// SQL on a file that a test's subject has open, by another program.
#pragma once

#include <cstdlib>
#include <string>

namespace derate {

// Not 0: it failed, or there is no sqlite3 here.
inline int run_sql(const std::string& path, const std::string& sql) {
  return std::system(("sqlite3 '" + path + "' \"" + sql + "\" >/dev/null").c_str());
}

}  // namespace derate
