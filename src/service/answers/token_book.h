// The tokens by which derate-agent's callers are believed: each allows what a role may, until it
// expires. Never an admin's: a token passes through the hands of other programs, and who can set
// the configuration or create tokens could keep that right when the token is revoked.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/operations.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/result.h"
#include "base/secret.h"
#include "store/token_file.h"

namespace derate {

class TokenBook {
 public:
  static constexpr std::string_view kPrefix = "derate_";
  // Of 256 bits in base64url, with the prefix.
  static constexpr std::size_t kLength = kPrefix.size() + kSecretLetters;
  static constexpr std::size_t kMost = 256;

  // Of the file, which is made with the first token. One that is refused is logged, and none is
  // believed until it is mended. An empty path: there are no tokens. `clock` outlives it.
  TokenBook(std::string path, Clock& clock, Log log);
  TokenBook(const TokenBook&) = delete;
  TokenBook& operator=(const TokenBook&) = delete;

  // Reads the file anew.
  void load();

  struct Holder {
    std::string name;
    Role role = Role::reader;
  };
  // Who has that secret; from any thread. It takes as long whatever the secret is. Errors:
  // no_permission; whoever asks for strangers slows down those that are wrong.
  Result<Holder> check(std::string_view secret) const;
  // How many were not believed.
  std::uint64_t wrong() const { return wrong_; }

  // The secret, which is told this once. Errors: invalid_argument for the name or role, or a name
  // that is there; busy when there are kMost; those of the file: nothing is changed then.
  Result<TokenRecord> create(const std::string& name, std::string_view role, Duration lifetime,
                             const std::string& by);
  // Errors: not_found; those of the file: it is believed as before then.
  Result<void> revoke(const std::string& name);
  // By name. Errors: those of the file.
  Result<std::vector<TokenRecord>> list() const;
  bool expired(const TokenRecord& token) const { return clock_.wall_now() >= token.expires; }

 private:
  using Tokens = std::vector<TokenRecord>;
  std::shared_ptr<const Tokens> tokens() const;
  Result<void> keep(Tokens tokens);

  std::string path_;
  Clock& clock_;
  Log log_;
  std::optional<Error> broken_;  // what is wrong with the file
  mutable std::mutex mutex_;     // of tokens_
  std::shared_ptr<const Tokens> tokens_ = std::make_shared<const Tokens>();
  mutable std::atomic<std::uint64_t> wrong_{0};
};

}  // namespace derate
