#include "fakenvml/return_codes.h"

#include "device/nvml/nvml_abi.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

constexpr ReturnName named(const char* name, Return code) {
  return {name, static_cast<std::uint32_t>(code)};
}
constexpr ReturnName kNames[] = {
    named("uninitialized", Return::uninitialized),
    named("invalid_argument", Return::invalid_argument),
    named("not_supported", Return::not_supported),
    named("no_permission", Return::no_permission),
    named("not_found", Return::not_found),
    named("insufficient_size", Return::insufficient_size),
    named("driver_not_loaded", Return::driver_not_loaded),
    named("timeout", Return::timeout),
    named("function_not_found", Return::function_not_found),
    named("gpu_is_lost", Return::gpu_is_lost),
    named("reset_required", Return::reset_required),
    named("operating_system", Return::operating_system),
    named("lib_rm_version_mismatch", Return::lib_rm_version_mismatch),
    named("argument_version_mismatch", Return::argument_version_mismatch),
    named("unknown", Return::unknown),
};

}  // namespace

std::span<const ReturnName> return_names() { return kNames; }

Errc errc_of(std::uint32_t code) {
  switch (static_cast<Return>(code)) {
    case Return::no_permission:
      return Errc::no_permission;
    case Return::not_found:
      return Errc::not_found;
    case Return::not_supported:
      return Errc::not_supported;
    case Return::gpu_is_lost:
      return Errc::gpu_lost;
    default:
      return Errc::invalid_argument;
  }
}

}  // namespace derate::fakenvml
