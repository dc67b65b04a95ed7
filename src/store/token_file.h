// The file of the tokens that the HTTP API accepts: only its owner may read it, and no secret is in
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

struct TokenRecord {
  std::string name;
  std::string role;  // "reader", "user", "operator"
  std::string hash;  // token_hash() of the secret
  std::string created_by;
  WallTime created{}, expires{};
  bool operator==(const TokenRecord&) const = default;
};

// SHA-256 as 64 hexadecimal digits. A secret has 256 random bits, so the hash needs no salt and no
// slowness: nobody can search for what it is of.
std::string token_hash(std::string_view secret);

struct TokenFile {
  std::vector<TokenRecord> tokens = {};
  bool had_secrets = false;  // the file is of Derate 0.1, which kept the secrets themselves
};

// None where there is no file. Errors: no_permission for a file that another user has written or
// could have read, bad_data for one that does not parse, io; the message names the file and what to
// do.
Result<TokenFile> read_tokens(const std::string& path);

// Through a temporary file of mode 0600, flushed to disk, so that it may wait for the disk; makes
// its folder. Errors: no_permission, io.
Result<void> write_tokens(const std::string& path, const std::vector<TokenRecord>& tokens);

}  // namespace derate
