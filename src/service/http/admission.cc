#include "service/http/admission.h"

#include <fmt/format.h>

#include <functional>
#include <optional>

#include "base/text.h"

namespace derate {
namespace {

HttpResponse unauthorized(std::string_view why) {
  HttpResponse out = error_response(401, why);
  out.fields.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

constexpr std::string_view kScheme = "bearer ";  // case-insensitive (RFC 9110, 11.1)

// The token in a field Authorization. Empty: the field has none.
std::optional<std::string_view> secret_of(std::string_view authorization) {
  if (to_lower(authorization.substr(0, kScheme.size())) != kScheme) return std::nullopt;
  return trim(authorization.substr(kScheme.size()));
}

// The number of a person that no user has.
uid_t share_of_token(const std::string& name) {
  constexpr uid_t kFirst = 0xf0000000, kCount = 0x08000000;
  return kFirst + static_cast<uid_t>(std::hash<std::string>{}(name) % kCount);
}

}  // namespace

uid_t share_of(const HttpRequest& head, const Peer& peer, const CallerRoles& roles,
               const TokenBook& tokens) {
  const auto said = find_field(head.fields, "Authorization");
  if (!said || roles.of(peer) != Role::agent) return peer.share();
  const auto secret = secret_of(*said);
  const auto holder = secret ? tokens.find(*secret) : std::nullopt;
  return holder ? share_of_token(holder->name) : peer.share();
}

std::variant<Peer, HttpResponse> admit(const HttpRequest& request, const Peer& peer,
                                       const CallerRoles& roles, const TokenBook& tokens) {
  Peer out = peer;
  if (const auto said = find_field(request.fields, "Authorization")) {
    const auto secret = secret_of(*said);
    if (!secret) return unauthorized("Authorization: wanted is Bearer and a token");
    const auto holder = tokens.check(*secret);
    if (!holder.ok()) return unauthorized(holder.error().message);
    out.role = holder->role;
    out.token = holder->name;
    if (roles.of(peer) != Role::agent) return out;
    out.person = share_of_token(holder->name);
    out.keeps_place = holder->role == Role::operates;
    return out;
  }
  out.role = roles.of(peer);
  if (out.role) return out;
  return error_response(403, fmt::format("{} may not ask derated: [api] readers does not name it",
                                         caller_name(peer)));
}

}  // namespace derate
