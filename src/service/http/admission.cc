#include "service/http/admission.h"

#include <fmt/format.h>

#include "base/text.h"

namespace derate {
namespace {

HttpResponse unauthorized(std::string_view why) {
  HttpResponse out = error_response(401, why);
  out.fields.emplace_back("WWW-Authenticate", "Bearer");
  return out;
}

}  // namespace

std::variant<Peer, HttpResponse> admit(const HttpRequest& request, const Peer& peer,
                                       const CallerRoles& roles, const TokenBook& tokens) {
  Peer out = peer;
  if (const auto said = find_field(request.fields, "Authorization")) {
    constexpr std::string_view kScheme = "bearer ";  // its case does not matter (RFC 9110, 11.1)
    if (to_lower(said->substr(0, kScheme.size())) != kScheme)
      return unauthorized("Authorization: wanted is Bearer and a token");
    const auto holder = tokens.check(trim(std::string_view(*said).substr(kScheme.size())));
    if (!holder.ok()) return unauthorized(holder.error().message);
    out.role = holder->role;
    out.token = holder->name;
    return out;
  }
  out.role = roles.of(peer);
  if (out.role) return out;
  return error_response(403, fmt::format("{} may not ask derated: [api] readers does not name it",
                                         caller_name(peer)));
}

}  // namespace derate
