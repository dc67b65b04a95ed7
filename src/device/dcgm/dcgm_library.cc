#include "device/dcgm/dcgm_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <iterator>
#include <vector>

#include "base/check.h"

namespace derate {
namespace {

using dcgm::Return;

template <auto Member>
constexpr DcgmSymbol symbol(const char* name) {
  return {name,
          [](DcgmFunctions& functions, void* found) {
            using Function = std::remove_reference_t<decltype(functions.*Member)>;
            functions.*Member = reinterpret_cast<Function>(found);
          },
          [](const DcgmFunctions& functions) { return functions.*Member != nullptr; }};
}

using F = DcgmFunctions;
constexpr DcgmSymbol kSymbols[] = {
    symbol<&F::init>("dcgmInit"),
    symbol<&F::shutdown>("dcgmShutdown"),
    symbol<&F::error_string>("errorString"),
    symbol<&F::connect>("dcgmConnect_v2"),
    symbol<&F::disconnect>("dcgmDisconnect"),
    symbol<&F::engine_version>("dcgmHostengineVersionInfo"),
    symbol<&F::all_gpus>("dcgmGetAllSupportedDevices"),
    symbol<&F::metric_groups>("dcgmProfGetSupportedMetricGroups"),
    symbol<&F::hierarchy>("dcgmGetGpuInstanceHierarchy"),
    symbol<&F::group_create>("dcgmGroupCreate"),
    symbol<&F::group_add>("dcgmGroupAddEntity"),
    symbol<&F::group_destroy>("dcgmGroupDestroy"),
    symbol<&F::fields_create>("dcgmFieldGroupCreate"),
    symbol<&F::watch>("dcgmWatchFields"),
    symbol<&F::unwatch>("dcgmUnwatchFields"),
    symbol<&F::latest_values>("dcgmEntitiesGetLatestValues"),
};
// A member without a row would stay null for ever.
static_assert(sizeof(DcgmFunctions) == std::size(kSymbols) * sizeof(void*));

Errc errc_of(Return code) {
  switch (code) {
    case Return::not_supported:
    case Return::version_mismatch:
    case Return::module_not_loaded:
    case Return::profiling_not_supported:
    case Return::profiling_multi_pass:
      return Errc::not_supported;
    case Return::no_permission:
      return Errc::no_permission;
    case Return::gpu_is_lost:
      return Errc::gpu_lost;
    case Return::connection_not_valid:
      return Errc::io;
    case Return::in_use:
    case Return::profiling_library_error:
    case Return::paused:
      return Errc::busy;
    default:
      return Errc::query_failed;
  }
}

Error dcgm_error(const DcgmFunctions& functions, Return code, const char* call) {
  const char* words = functions.error_string(code);
  return {errc_of(code), fmt::format("{}: {} (DCGM error {})", call,
                                     words != nullptr ? words : "failed", static_cast<int>(code))};
}

std::vector<std::string> names_of(std::string_view path) {
  if (!path.empty()) return {std::string(path)};
  // The secure form: a program that runs with more rights than its user takes no library from them.
  if (const char* named = ::secure_getenv("DERATE_DCGM_LIBRARY")) return {named};
  return {"libdcgm.so.4", "libdcgm.so.3"};
}

}  // namespace

std::span<const DcgmSymbol> dcgm_symbols() { return kSymbols; }

Result<DcgmFunctions> resolve_dcgm(const std::function<void*(const char*)>& lookup) {
  DcgmFunctions functions;
  for (const DcgmSymbol& symbol : kSymbols) {
    void* found = lookup(symbol.name);
    if (found == nullptr)
      return Error{Errc::function_missing,
                   fmt::format("the DCGM library lacks the function {}", symbol.name)};
    symbol.store(functions, found);
  }
  return functions;
}

Result<std::shared_ptr<const DcgmLibrary>> DcgmLibrary::load(std::string_view path) {
  std::string reasons;
  for (const std::string& name : names_of(path)) {
    Handle handle(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), ::dlclose);
    if (handle == nullptr) {
      const char* why = ::dlerror();
      reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ",
                             why != nullptr ? why : name + ": unknown reason");
      continue;
    }
    auto functions =
        resolve_dcgm([&](const char* symbol) { return ::dlsym(handle.get(), symbol); });
    if (!functions.ok()) return std::move(functions).error().with(name);
    return start(std::move(handle), *functions);
  }
  return Error{Errc::library_missing, "cannot load DCGM's library: " + reasons};
}

Result<std::shared_ptr<const DcgmLibrary>> DcgmLibrary::create(const DcgmFunctions& functions) {
  for (const DcgmSymbol& symbol : kSymbols) CHECK(symbol.present(functions));
  return start(Handle(nullptr, ::dlclose), functions);
}

Result<std::shared_ptr<const DcgmLibrary>> DcgmLibrary::start(Handle handle,
                                                              const DcgmFunctions& functions) {
  const Return code = functions.init();
  if (code != Return::ok) return dcgm_error(functions, code, "dcgmInit");
  return std::shared_ptr<const DcgmLibrary>(new DcgmLibrary(std::move(handle), functions));
}

DcgmLibrary::~DcgmLibrary() { functions_.shutdown(); }

Error DcgmLibrary::error(Return code, const char* call) const {
  return dcgm_error(functions_, code, call);
}

}  // namespace derate
