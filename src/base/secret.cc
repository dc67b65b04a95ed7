#include "base/secret.h"

#include <sys/random.h>

#include <array>

namespace derate {

Result<std::string> random_secret(std::string_view prefix) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Error{Errc::io, "the kernel gives no random bytes"};
  std::string out(prefix);
  unsigned bits = 0;
  int held = 0;
  for (const unsigned char byte : bytes) {
    bits = (bits << 8 | byte) & 0x3fff;
    for (held += 8; held >= 6; held -= 6) out += kLetters[bits >> (held - 6) & 63];
  }
  if (held > 0) out += kLetters[bits << (6 - held) & 63];
  return out;
}

bool is_same_secret(std::string_view secret, std::string_view given) {
  volatile unsigned char differs = secret.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char own = i < secret.size() ? secret[i] : '\0';
    differs = static_cast<unsigned char>(differs | (own ^ given[i]));
  }
  return differs == 0;
}

}  // namespace derate
