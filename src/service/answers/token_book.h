// The tokens of derate-agent's callers: each allows what a role may, until it expires. None has the
// role admin: a token passes through other programs, and a caller who can set the configuration or
// create tokens could keep that right when the token is revoked. A change is written by another
// thread, and holds when it is on disk.
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
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
#include "store/store_writer.h"
#include "store/token_file.h"

namespace derate {

class TokenBook {
 public:
  static constexpr std::string_view kPrefix = "derate_";
  // Of 256 bits in base64url, with the prefix.
  static constexpr std::size_t kLength = kPrefix.size() + kSecretLetters;
  static constexpr std::size_t kMost = 256;
  using Where = BackgroundWorker::Where;

  // Of the file, which is made with the first token. One that is refused is logged, and no token is
  // accepted until it is mended. An empty path: there are no tokens. `clock` outlives it.
  TokenBook(std::string path, Clock& clock, Log log, Where where = Where::on_a_thread);
  TokenBook(const TokenBook&) = delete;
  TokenBook& operator=(const TokenBook&) = delete;

  // Reads the file anew. One of Derate 0.1 is written anew, without its secrets.
  void load();

  struct Holder {
    std::string name;
    Role role = Role::reader;
  };
  // Who has that secret; from any thread. It takes as long whatever the secret is. Errors:
  // no_permission; whoever asks for strangers slows down those that are wrong.
  Result<Holder> check(std::string_view secret) const;
  // Like check(), but counts no failure. Empty: no token has that secret.
  std::optional<Holder> find(std::string_view secret) const;
  // How many were refused.
  std::uint64_t wrong() const { return wrong_; }

  // --- changes, one after the other: each holds when poll() says so

  struct NewToken {
    TokenRecord token;
    std::string secret;  // which is kept nowhere
  };
  // Errors: invalid_argument for the name or role, or a name that is there; busy when there are
  // kMost, or a change is under way.
  Result<NewToken> create(const std::string& name, std::string_view role, Duration lifetime,
                          const std::string& by);
  // Errors: not_found; busy as above.
  Result<void> revoke(const std::string& name);
  // Whether the change that was begun has been written, after `patience` at most. Empty: not yet,
  // or none is under way. Errors: those of the file, and then nothing has changed.
  std::optional<Result<void>> poll(Duration patience = {});

  // By name. Errors: those of the file.
  Result<std::vector<TokenRecord>> list() const;
  bool expired(const TokenRecord& token) const { return clock_.wall_now() >= token.expires; }

 private:
  using Tokens = std::vector<TokenRecord>;
  struct Change {
    std::shared_ptr<const Tokens> tokens;
    std::future<Result<void>> written;
  };
  static const TokenRecord* record_of(const Tokens& all, std::string_view secret);
  std::shared_ptr<const Tokens> tokens() const;
  Result<void> check_change() const;
  std::future<Result<void>> write(std::shared_ptr<const Tokens> tokens);

  std::string path_;
  Clock& clock_;
  Log log_;
  std::optional<Error> broken_;  // what is wrong with the file
  mutable std::mutex mutex_;     // of tokens_
  std::shared_ptr<const Tokens> tokens_ = std::make_shared<const Tokens>();
  std::optional<Change> change_;
  mutable std::atomic<std::uint64_t> wrong_{0};
  StoreWriter<std::string> writer_;  // of the file with that path
};

}  // namespace derate
