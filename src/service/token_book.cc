#include "service/token_book.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

#include "base/when.h"
#include "tune/job.h"

namespace derate {
namespace {

constexpr Role kRoles[] = {Role::reader, Role::user, Role::operates};

std::optional<Role> role_named(std::string_view word) {
  const auto at = std::find_if(std::begin(kRoles), std::end(kRoles),
                               [&](Role role) { return word == to_string(role); });
  return at == std::end(kRoles) ? std::nullopt : std::optional(*at);
}

// RFC 4648, section 5, without padding.
std::string base64url(const std::array<unsigned char, 32>& bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  std::string out;
  unsigned bits = 0;
  int held = 0;
  for (const unsigned char byte : bytes) {
    bits = (bits << 8 | byte) & 0x3fff;
    for (held += 8; held >= 6; held -= 6) out += kLetters[bits >> (held - 6) & 63];
  }
  if (held > 0) out += kLetters[bits << (6 - held) & 63];
  return out;
}

Result<std::string> new_secret() {
  std::array<unsigned char, 32> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    return Error{Errc::io, "the kernel gives no random bytes"};
  return std::string(TokenBook::kPrefix) + base64url(bytes);
}

using Letters = std::array<char, TokenBook::kLength>;

// Each letter is looked at, whichever differ.
bool is_same(const std::string& secret, const Letters& given) {
  volatile unsigned char differs = secret.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const char own = i < secret.size() ? secret[i] : '\0';
    differs = static_cast<unsigned char>(differs | (own ^ given[i]));
  }
  return differs == 0;
}

}  // namespace

TokenBook::TokenBook(std::string path, Clock& clock, Log log)
    : path_(std::move(path)), clock_(clock), log_(std::move(log)) {
  load();
}

void TokenBook::load() {
  if (path_.empty()) return;
  auto read = read_tokens(path_);
  const std::string told = broken_ ? broken_->message : "";
  broken_ = read.ok() ? std::nullopt : std::optional(read.error());
  if (broken_ && broken_->message != told)
    log_.error("no token is believed: " + broken_->message, {{"path", path_}});
  if (!broken_ && !told.empty()) log_.info("tokens are believed again", {{"path", path_}});
  const std::lock_guard lock(mutex_);
  tokens_ = std::make_shared<const Tokens>(read.ok() ? *std::move(read) : Tokens{});
}

std::shared_ptr<const TokenBook::Tokens> TokenBook::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

Result<TokenBook::Holder> TokenBook::check(std::string_view secret) const {
  Letters given{};
  std::copy_n(secret.begin(), std::min(secret.size(), given.size()), given.begin());
  const auto all = tokens();
  const TokenRecord* found = nullptr;
  for (const TokenRecord& each : *all)
    if (is_same(each.secret, given) && secret.size() == kLength) found = &each;
  const auto role = found == nullptr ? std::nullopt : role_named(found->role);
  if (role && !expired(*found)) return Holder{found->name, *role};
  ++wrong_;
  if (role)
    return Error{Errc::no_permission, fmt::format("the token '{}' expired at {}", found->name,
                                                  when_text(found->expires))};
  return Error{Errc::no_permission, "no such token"};
}

Result<void> TokenBook::keep(Tokens tokens) {
  TRY(write_tokens(path_, tokens));
  const std::lock_guard lock(mutex_);
  tokens_ = std::make_shared<const Tokens>(std::move(tokens));
  return {};
}

Result<TokenRecord> TokenBook::create(const std::string& name, std::string_view role,
                                      Duration lifetime, const std::string& by) {
  if (broken_) return *broken_;
  if (path_.empty()) return Error{Errc::not_supported, "no tokens are kept here"};
  TRY(check_job_name(name));
  if (!role_named(role))
    return Error{Errc::invalid_argument,
                 fmt::format("role '{}': allowed are reader, user, operator", role)};
  Tokens all = *tokens();
  // An expired one of that name has no more to say.
  std::erase_if(all, [&](const TokenRecord& each) { return each.name == name && expired(each); });
  if (std::any_of(all.begin(), all.end(), [&](const auto& each) { return each.name == name; }))
    return Error{Errc::invalid_argument,
                 fmt::format("there is a token '{}': revoke it first", name)};
  if (all.size() >= kMost)
    return Error{Errc::busy, fmt::format("there are {} tokens: revoke some first", kMost)};
  const WallTime now = clock_.wall_now();
  const std::string secret = TRY(new_secret());
  TokenRecord out{name, std::string(role), secret, by, now, now + lifetime};
  all.push_back(out);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  TRY(keep(std::move(all)));
  return out;
}

Result<void> TokenBook::revoke(const std::string& name) {
  if (broken_) return *broken_;
  Tokens all = *tokens();
  if (std::erase_if(all, [&](const TokenRecord& each) { return each.name == name; }) == 0)
    return Error{Errc::not_found, fmt::format("there is no token '{}'", name)};
  return keep(std::move(all));
}

Result<std::vector<TokenRecord>> TokenBook::list() const {
  if (broken_) return *broken_;
  return *tokens();
}

}  // namespace derate
