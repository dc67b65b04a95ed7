// Admission of HTTP requests: the caller and its role, by the bearer token that a request carries,
// else by the user that the kernel names.
#pragma once

#include <variant>

#include "service/answers/caller_role.h"
#include "service/answers/token_book.h"
#include "service/http/http_message.h"
#include "service/transport/client_connection.h"

namespace derate {

// Returns the caller with its role, and the token's name if a token admits it (Authorization:
// Bearer TOKEN). Otherwise returns the answer that refuses the caller: 401 for an invalid token of
// any caller, 403 for a user without a role. Callable from any thread.
// A request that the agent passes on takes the share of its token. It has a reserved place if the
// token's role is operator.
std::variant<Peer, HttpResponse> admit(const HttpRequest& request, const Peer& peer,
                                       const CallerRoles& roles, const TokenBook& tokens);

// The person whose share a request takes, by its head, before it is admitted. A request that the
// agent passes on with a valid token takes the token's share, else the user's. Callable from any
// thread.
uid_t share_of(const HttpRequest& head, const Peer& peer, const CallerRoles& roles,
               const TokenBook& tokens);

}  // namespace derate
