// Admission of HTTP requests: the caller and its role, by the bearer token that a request carries,
// else by the user that the kernel names.
#pragma once

#include <variant>

#include "service/answers/caller_role.h"
#include "service/answers/token_book.h"
#include "service/http/http_message.h"
#include "service/transport/client_connection.h"

namespace derate {

// The caller with a role, and the token's name where it is believed by one (Authorization: Bearer
// TOKEN); or the answer that refuses it: 401 for a token that is not believed, whoever brings it,
// 403 for a user who may do nothing. For any thread.
// What the agent carries takes the share of its token, and a place that is kept if that one's role
// is operator.
std::variant<Peer, HttpResponse> admit(const HttpRequest& request, const Peer& peer,
                                       const CallerRoles& roles, const TokenBook& tokens);

// Whose share a request takes, by its head, before it is admitted: of one that the agent carries
// its token's, if that is a good one; else its user's. For any thread.
uid_t share_of(const HttpRequest& head, const Peer& peer, const CallerRoles& roles,
               const TokenBook& tokens);

}  // namespace derate
