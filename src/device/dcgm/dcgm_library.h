// libdcgm, loaded at run time: the client of a DCGM host engine. Derate starts without it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/dcgm/dcgm_abi.h"

namespace derate {

struct DcgmSymbol {
  const char* name;
  void (*store)(DcgmFunctions& functions, void* symbol);
  bool (*present)(const DcgmFunctions& functions);
};

// All symbols that are looked up, in the order of DcgmFunctions. Each is required: DCGM 3.3.9 and
// 4.6.0 have all of them.
std::span<const DcgmSymbol> dcgm_symbols();

// Fills the functions from `lookup`, which gives null for a name that is not there.
// Errors: function_missing names the symbol.
Result<DcgmFunctions> resolve_dcgm(const std::function<void*(const char*)>& lookup);

// DCGM's client, initialised; shut down and unloaded with the object. Shared, since a call that
// hangs keeps using the library after its caller gave up.
class DcgmLibrary {
 public:
  // Loads `path`; when that is empty, what DERATE_DCGM_LIBRARY names; else libdcgm.so.4, then
  // libdcgm.so.3. Errors: library_missing, function_missing, query_failed.
  static Result<std::shared_ptr<const DcgmLibrary>> load(std::string_view path = {});
  // The same over given functions, all of which must be there.
  static Result<std::shared_ptr<const DcgmLibrary>> create(const DcgmFunctions& functions);

  DcgmLibrary(const DcgmLibrary&) = delete;
  DcgmLibrary& operator=(const DcgmLibrary&) = delete;
  ~DcgmLibrary();

  const DcgmFunctions& functions() const { return functions_; }
  // The error of a call's return: "dcgmConnect_v2: Host engine not valid (DCGM error -21)".
  Error error(dcgm::Return code, const char* call) const;

 private:
  using Handle = std::unique_ptr<void, int (*)(void*)>;
  static Result<std::shared_ptr<const DcgmLibrary>> start(Handle handle,
                                                          const DcgmFunctions& functions);
  DcgmLibrary(Handle handle, const DcgmFunctions& functions)
      : handle_(std::move(handle)), functions_(functions) {}

  Handle handle_;
  DcgmFunctions functions_;
};

}  // namespace derate
