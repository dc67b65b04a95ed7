// Secrets that nobody guesses, and their comparison.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace derate {

// Letters of random_secret(), without its prefix: 256 bits.
inline constexpr std::size_t kSecretLetters = 43;

// `prefix` and 32 random bytes of the kernel as base64url (RFC 4648, section 5, without padding).
// Errors: io.
Result<std::string> random_secret(std::string_view prefix = {});

// In a time that does not tell where they differ; only whether `given` is as long can be told.
bool is_same_secret(std::string_view secret, std::string_view given);

}  // namespace derate
