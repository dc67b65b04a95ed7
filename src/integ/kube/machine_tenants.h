// Who the tenants of this machine's GPUs are: src/integ, put together.
#pragma once

#include <functional>
#include <string>

#include "core/tenant_names.h"

namespace derate {

// Asks /proc, the user database and, where there is one, the kubelet at that socket. Keeps what it
// asks with itself: a call that hangs may outlive everything else.
// `tell`: called on any thread, once for each change of what the kubelet answers.
ResolveTenants machine_tenant_resolver(const std::string& pod_resources,
                                       std::function<void(const std::string& text)> tell);

}  // namespace derate
