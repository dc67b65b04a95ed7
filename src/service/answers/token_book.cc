#include "service/answers/token_book.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/secret.h"
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

using Letters = std::array<char, TokenBook::kLength>;

}  // namespace

TokenBook::TokenBook(std::string path, Clock& clock, Log log, Where where)
    : path_(std::move(path)),
      clock_(clock),
      log_(std::move(log)),
      writer_(std::make_unique<std::string>(path_), where) {
  load();
}

void TokenBook::load() {
  if (path_.empty()) return;
  auto read = read_tokens(path_);
  const std::string told = broken_ ? broken_->message : "";
  broken_ = read.ok() ? std::nullopt : std::optional(read.error());
  if (broken_ && broken_->message != told)
    log_.error("no token is accepted: " + broken_->message, {{"path", path_}});
  if (!broken_ && !told.empty()) log_.info("tokens are accepted again", {{"path", path_}});
  auto now = std::make_shared<const Tokens>(read.ok() ? std::move(read->tokens) : Tokens{});
  // Where this fails the file stays as it is, and the next start tries again.
  if (read.ok() && read->had_secrets) (void)write(now);
  const std::lock_guard lock(mutex_);
  tokens_ = std::move(now);
}

std::future<Result<void>> TokenBook::write(std::shared_ptr<const Tokens> tokens) {
  return writer_.post([tokens = std::move(tokens)](const std::string& path) {
    return write_tokens(path, *tokens);
  });
}

std::shared_ptr<const TokenBook::Tokens> TokenBook::tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_;
}

const TokenRecord* TokenBook::record_of(const Tokens& all, std::string_view secret) {
  Letters given{};
  std::copy_n(secret.begin(), std::min(secret.size(), given.size()), given.begin());
  const std::string hash = token_hash({given.data(), given.size()});
  const TokenRecord* found = nullptr;
  for (const TokenRecord& each : all)
    if (is_same_secret(each.hash, hash) && secret.size() == kLength) found = &each;
  return found != nullptr && role_named(found->role) ? found : nullptr;
}

std::optional<TokenBook::Holder> TokenBook::find(std::string_view secret) const {
  const auto all = tokens();
  const TokenRecord* const found = record_of(*all, secret);
  if (found == nullptr || expired(*found)) return std::nullopt;
  return Holder{found->name, *role_named(found->role)};
}

Result<TokenBook::Holder> TokenBook::check(std::string_view secret) const {
  const auto all = tokens();
  const TokenRecord* const found = record_of(*all, secret);
  if (found != nullptr && !expired(*found)) return Holder{found->name, *role_named(found->role)};
  ++wrong_;
  if (found != nullptr)
    return Error{Errc::no_permission, fmt::format("the token '{}' expired at {}", found->name,
                                                  when_text(found->expires))};
  return Error{Errc::no_permission, "no such token"};
}

std::optional<Result<void>> TokenBook::poll(Duration patience) {
  if (!change_ || change_->written.wait_for(patience) != std::future_status::ready)
    return std::nullopt;
  auto written = change_->written.get();
  if (written.ok() && !broken_) {
    const std::lock_guard lock(mutex_);
    tokens_ = std::move(change_->tokens);
  }
  change_.reset();
  return written;
}

Result<void> TokenBook::check_change() const {
  if (broken_) return *broken_;
  if (change_) return Error{Errc::busy, "another change of the tokens is being written"};
  return {};
}

Result<TokenBook::NewToken> TokenBook::create(const std::string& name, std::string_view role,
                                              Duration lifetime, const std::string& by) {
  TRY(check_change());
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
  NewToken out;
  out.secret = TRY(random_secret(TokenBook::kPrefix));
  out.token = {name, std::string(role), token_hash(out.secret), by, now, now + lifetime};
  all.push_back(out.token);
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  const auto wanted = std::make_shared<const Tokens>(std::move(all));
  change_ = Change{wanted, write(wanted)};
  return out;
}

Result<void> TokenBook::revoke(const std::string& name) {
  TRY(check_change());
  Tokens all = *tokens();
  if (std::erase_if(all, [&](const TokenRecord& each) { return each.name == name; }) == 0)
    return Error{Errc::not_found, fmt::format("there is no token '{}'", name)};
  const auto wanted = std::make_shared<const Tokens>(std::move(all));
  change_ = Change{wanted, write(wanted)};
  return {};
}

Result<std::vector<TokenRecord>> TokenBook::list() const {
  if (broken_) return *broken_;
  return *tokens();
}

}  // namespace derate
