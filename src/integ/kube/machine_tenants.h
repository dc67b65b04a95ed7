// Resolver of the tenants of this machine's GPUs: src/integ put together, with /proc, the user
// database and the kubelet's pods.
#pragma once

#include <string>

#include "base/log.h"
#include "core/tenant_names.h"

namespace derate {

// Asks /proc, the user database and, where there is one, the kubelet at that socket. Keeps what it
// asks with itself: a call that hangs may outlive everything else.
// `log`: of each change of what the kubelet answers, from any thread.
ResolveTenants machine_tenant_resolver(const std::string& pod_resources, const Log& log);

}  // namespace derate
