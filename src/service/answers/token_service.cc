#include "service/answers/token_service.h"

#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/when.h"

namespace derate {

struct TokenService::Begun {
  std::uint64_t connection = 0;
  AuditEntry entry;
  Json answer;
};

TokenService::TokenService(Clock& clock, TokenBook& book, CommandRouter& admins,
                           std::optional<AuditLog> audit, Log log)
    : clock_(clock),
      book_(book),
      admins_(admins),
      audit_(std::move(audit), "derated", std::move(log)) {
  const auto wait = [this](const auto& request, const Peer& peer) -> CommandRouter::Answer {
    waiting_.push_back({request, peer.connection, caller_name(peer)});
    step();
    return std::nullopt;
  };
  admins.add<TokenCreate, TokenRevoke>(wait);
  admins.add<TokenList>([this](const auto&, const Peer&) { return list(); });
}

TokenService::~TokenService() = default;

// Whether no change is under way any more.
bool TokenService::finish(Duration patience) {
  if (begun_ == nullptr) return true;
  const auto written = book_.poll(patience);
  if (!written) return false;
  const auto done = std::exchange(begun_, nullptr);
  if (written->ok()) {
    done->entry.time = clock_.wall_now();
    audit_.add(std::move(done->entry));
  }
  admins_.later(done->connection,
                written->ok() ? Result<Json>(std::move(done->answer)) : written->error());
  return true;
}

void TokenService::step() {
  while (finish({}) && !waiting_.empty()) {
    const Wanted next = std::move(waiting_.front());
    waiting_.pop_front();
    auto begun = begin(next);
    if (!begun.ok()) {
      admins_.later(next.connection, begun.error());
      continue;
    }
    begun_ = std::make_unique<Begun>(*std::move(begun));
    begun_->connection = next.connection;
  }
}

void TokenService::refuse(const Error& why) {
  (void)finish(StoreWriter<std::string>::kEndPatience);
  for (const Wanted& each : std::exchange(waiting_, {})) admins_.later(each.connection, why);
}

Result<TokenService::Begun> TokenService::begin(const Wanted& wanted) {
  if (const auto* create = std::get_if<TokenCreate>(&wanted.request))
    return begin(*create, wanted.who);
  return begin(std::get<TokenRevoke>(wanted.request), wanted.who);
}

Result<TokenService::Begun> TokenService::begin(const TokenCreate& request,
                                                const std::string& who) {
  constexpr double kDay = 86400;
  const auto made =
      TRY(book_.create(request.name, request.role, from_seconds(request.days * kDay), who));
  const TokenRecord& token = made.token;
  const std::string until = when_text(token.expires);
  Begun out;
  out.entry = {.what = "token " + token.name,
               .after = fmt::format("{} until {}", token.role, until),
               .why = "token-create by " + who};
  out.answer = answer_json(TokenAnswer{
      .message = fmt::format("the token '{}' allows what a{} {} may until {}", token.name,
                             token.role == "operator" ? "n" : "", token.role, until),
      .token = made.secret,
      .expires_unix_seconds = seconds(token.expires.time_since_epoch())});
  return out;
}

Result<TokenService::Begun> TokenService::begin(const TokenRevoke& request,
                                                const std::string& who) {
  TRY(book_.revoke(request.name));
  Begun out;
  out.entry = {
      .what = "token " + request.name, .after = "revoked", .why = "token-revoke by " + who};
  out.answer =
      answer_json(MessageAnswer{fmt::format("the token '{}' is believed no more", request.name)});
  return out;
}

Result<Json> TokenService::list() const {
  TokensAnswer out{.wrong = static_cast<std::int64_t>(book_.wrong())};
  for (const TokenRecord& each : TRY(book_.list()))
    out.tokens.push_back({each.name, each.role, each.created_by,
                          seconds(each.created.time_since_epoch()),
                          seconds(each.expires.time_since_epoch()), book_.expired(each)});
  return answer_json(out);
}

}  // namespace derate
