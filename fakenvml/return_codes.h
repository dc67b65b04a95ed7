// NVML's error codes by name, for the command line, and as Derate's kinds of errors.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"

namespace derate::fakenvml {

struct ReturnName {
  const char* name;  // NVML's without its prefix, in small letters
  std::uint32_t code;
};
// Those that a call of a driver may fail with.
std::span<const ReturnName> return_names();

// What a refusal of the server is to the command.
Errc errc_of(std::uint32_t code);

}  // namespace derate::fakenvml
