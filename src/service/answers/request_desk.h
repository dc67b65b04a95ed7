// The entry of the daemon's requests: the routers of operators' and of clients' operations, the
// lines of the two sockets, and the queue of requests that wait for the loop.
#pragma once

#include "service/answers/request_lines.h"
#include "service/answers/request_queue.h"

namespace derate {

struct RequestDesk {
  RequestDesk(Clock& clock, Log log) : queue(clock, std::move(log)) {}

  CommandRouter& router_of(const Operation& operation) {
    return operators.has(operation) ? operators : clients;
  }

  CommandRouter operators{Role::admin}, clients{Role::user};
  RequestQueue queue;
  RequestLines operator_lines{operators, &queue}, client_lines{clients, &queue};
};

}  // namespace derate
