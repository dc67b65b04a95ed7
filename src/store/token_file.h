// The file of the tokens that the HTTP API believes: only its owner may read it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

struct TokenRecord {
  std::string name;
  std::string role;    // "reader", "user", "operator"
  std::string secret;  // as it is sent
  std::string created_by;
  WallTime created{}, expires{};
  bool operator==(const TokenRecord&) const = default;
};

// None where there is no file. Errors: no_permission for a file that another user has written or
// could have read, bad_data for one that does not parse, io; the message names the file and what to
// do.
Result<std::vector<TokenRecord>> read_tokens(const std::string& path);

// Through a temporary file of mode 0600, flushed to disk; makes its folder. Errors: no_permission,
// io.
Result<void> write_tokens(const std::string& path, const std::vector<TokenRecord>& tokens);

}  // namespace derate
