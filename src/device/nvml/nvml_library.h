// libnvidia-ml.so.1, loaded at run time: Derate starts, and says what is missing, on a machine
// without a driver.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/nvml/nvml_abi.h"

namespace derate {

struct NvmlSymbol {
  const char* name;
  const char* older_name;  // the same interface in older drivers; null when there is none
  bool required;
  void (*store)(NvmlFunctions& functions, void* symbol);
  bool (*present)(const NvmlFunctions& functions);
};

// All symbols that are looked up, in the order of NvmlFunctions.
std::span<const NvmlSymbol> nvml_symbols();

// Fills the functions from `lookup`, which gives null for a name that is not there.
// Errors: function_missing names the required symbol.
Result<NvmlFunctions> resolve_nvml(const std::function<void*(const char*)>& lookup);

// NVML, initialised; shut down and unloaded with the object. Shared, since a driver call that hangs
// keeps using the library after its GPU was given up (see nvml_thread.h).
class NvmlLibrary {
 public:
  // Loads `path`; when that is empty, what DERATE_NVML_LIBRARY names; else libnvidia-ml.so.1.
  // Errors: library_missing, function_missing, driver_not_loaded, no_permission, query_failed.
  static Result<std::shared_ptr<const NvmlLibrary>> load(std::string_view path = {});
  // The same over given functions; the required ones must be there.
  static Result<std::shared_ptr<const NvmlLibrary>> create(const NvmlFunctions& functions);

  NvmlLibrary(const NvmlLibrary&) = delete;
  NvmlLibrary& operator=(const NvmlLibrary&) = delete;
  ~NvmlLibrary();

  const NvmlFunctions& functions() const { return functions_; }
  // The driver's version as it names it: "570.124.06".
  std::optional<std::string> driver_version() const;
  // What a call's return means: "nvmlDeviceGetUUID: Insufficient Permissions (NVML error 4)".
  Error error(nvml::Return code, const char* call) const;

 private:
  using Handle = std::unique_ptr<void, int (*)(void*)>;
  static Result<std::shared_ptr<const NvmlLibrary>> start(Handle handle,
                                                          const NvmlFunctions& functions);
  NvmlLibrary(Handle handle, const NvmlFunctions& functions)
      : handle_(std::move(handle)), functions_(functions) {}

  Handle handle_;
  NvmlFunctions functions_;
};

// The error of an NVML return; `functions` gives NVML's own words.
Error nvml_error(const NvmlFunctions& functions, nvml::Return code, const char* call);

}  // namespace derate
