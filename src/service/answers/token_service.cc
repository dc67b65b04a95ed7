#include "service/answers/token_service.h"

#include <fmt/format.h>

#include "base/json.h"
#include "base/when.h"

namespace derate {

TokenService::TokenService(Clock& clock, TokenBook& book, QueuedCommands& commands,
                           CommandRouter& admins, std::optional<AuditLog> audit, Log log)
    : clock_(clock), book_(book), audit_(std::move(audit), "derated", std::move(log)) {
  commands.add<TokenCreate>(
      [this](const TokenCreate& request, const std::string& who) { return create(request, who); });
  commands.add<TokenRevoke>(
      [this](const TokenRevoke& request, const std::string& who) { return revoke(request, who); });
  admins.add<TokenList>(
      [this](const TokenList&, const Peer&) { return CommandRouter::Answer(list()); });
}

Result<Json> TokenService::create(const TokenCreate& request, const std::string& who) {
  constexpr double kDay = 86400;
  const TokenRecord made =
      TRY(book_.create(request.name, request.role, from_seconds(request.days * kDay), who));
  const std::string until = when_text(made.expires);
  audit_.add({.time = clock_.wall_now(),
              .what = "token " + made.name,
              .after = fmt::format("{} until {}", made.role, until),
              .why = "token-create by " + who});
  return answer_json(TokenAnswer{
      .message = fmt::format("the token '{}' allows what a{} {} may until {}", made.name,
                             made.role == "operator" ? "n" : "", made.role, until),
      .token = made.secret,
      .expires_unix_seconds = seconds(made.expires.time_since_epoch())});
}

Result<Json> TokenService::revoke(const TokenRevoke& request, const std::string& who) {
  TRY(book_.revoke(request.name));
  audit_.add({.time = clock_.wall_now(),
              .what = "token " + request.name,
              .after = "revoked",
              .why = "token-revoke by " + who});
  return answer_json(
      MessageAnswer{fmt::format("the token '{}' is believed no more", request.name)});
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
