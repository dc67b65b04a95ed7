// The address of a DCGM host engine of this machine.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace derate {

struct DcgmAddress {
  std::string host;  // of this machine; empty: a unix socket
  int port = 0;      // of a host
  std::string path;  // of a unix socket
  bool operator==(const DcgmAddress&) const = default;
};

// "127.0.0.1:5555" or "unix:/tmp/nv-hostengine". Errors: invalid_argument for another machine's
// address, too: its GPUs are not these.
Result<DcgmAddress> parse_dcgm_address(std::string_view text);
std::string to_string(const DcgmAddress& address);

}  // namespace derate
