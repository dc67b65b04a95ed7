#include "device/nvml/nvml_library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "base/exit_code.h"
#include "fakenvml/test_nvml.h"

namespace derate {
namespace {

using nvml::Return;

int a_function;  // an address that stands for one
const auto kAll = [](const char*) -> void* { return &a_function; };

// What changes a GPU is a short list, and locked clocks are first on it.
TEST(NvmlSymbols, FiveWrite) {
  const std::set<std::string> writers{
      "nvmlDeviceSetGpuLockedClocks", "nvmlDeviceResetGpuLockedClocks",
      "nvmlDeviceSetMemoryLockedClocks", "nvmlDeviceResetMemoryLockedClocks",
      "nvmlDeviceSetPowerManagementLimit"};
  // A set of events is of this process alone.
  const std::set<std::string> others{"nvmlEventSetCreate", "nvmlEventSetFree",
                                     "nvmlEventSetWait_v2"};
  std::set<std::string> names;
  for (const NvmlSymbol& symbol : nvml_symbols()) {
    EXPECT_TRUE(names.insert(symbol.name).second) << symbol.name;
    for (const char* verb : {"Set", "Reset", "Clear", "Create", "Destroy", "Modify", "Remove"})
      EXPECT_TRUE(std::string(symbol.name).find(verb) == std::string::npos ||
                  writers.contains(symbol.name) || others.contains(symbol.name))
          << symbol.name;
  }
}

TEST(NvmlSymbols, EachFillsItsOwnMember) {
  for (const NvmlSymbol& symbol : nvml_symbols()) {
    NvmlFunctions functions;
    EXPECT_FALSE(symbol.present(functions));
    symbol.store(functions, &a_function);
    for (const NvmlSymbol& other : nvml_symbols())
      EXPECT_EQ(other.present(functions), other.name == symbol.name) << symbol.name;
  }
}

TEST(ResolveNvml, OneMissingSymbol) {
  for (const NvmlSymbol& symbol : nvml_symbols()) {
    const auto functions = resolve_nvml([&](const char* name) -> void* {
      const bool gone = std::string_view(name) == symbol.name ||
                        (symbol.older_name && std::string_view(name) == symbol.older_name);
      return gone ? nullptr : &a_function;
    });
    ASSERT_EQ(functions.ok(), !symbol.required) << symbol.name;
    if (functions.ok()) {
      EXPECT_FALSE(symbol.present(*functions));
    } else {
      EXPECT_EQ(functions.error().code, Errc::function_missing);
      EXPECT_NE(functions.error().message.find(symbol.name), std::string::npos);
    }
  }
}

TEST(ResolveNvml, OlderNamesServe) {
  const auto functions = resolve_nvml([](const char* name) -> void* {
    for (const NvmlSymbol& symbol : nvml_symbols())
      if (symbol.older_name && std::string_view(name) == symbol.name) return nullptr;
    return &a_function;
  });
  ASSERT_TRUE(functions.ok());
  EXPECT_NE(functions->throttle_reasons, nullptr);
  EXPECT_NE(functions->compute_processes, nullptr);
  EXPECT_TRUE(resolve_nvml(kAll).ok());
}

TEST(NvmlLibrary, MissingLibraryIsSaidInOneSentence) {
  const auto library = NvmlLibrary::load("/nowhere/libnvidia-ml.so.1");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, Errc::library_missing);
  EXPECT_EQ(exit_code_of(library.error().code), 12);
  EXPECT_TRUE(library.error().message.starts_with(
      "cannot load /nowhere/libnvidia-ml.so.1, which comes with the NVIDIA driver: "))
      << library.error().message;
}

TEST(NvmlLibrary, EnvironmentNamesTheLibraryAndTheArgumentWins) {
  ASSERT_EQ(::setenv("DERATE_NVML_LIBRARY", "/nowhere/from_environment.so", 1), 0);
  EXPECT_NE(NvmlLibrary::load().error().message.find("/nowhere/from_environment.so"),
            std::string::npos);
  EXPECT_NE(NvmlLibrary::load("/nowhere/argument.so").error().message.find("/nowhere/argument.so"),
            std::string::npos);
  ::unsetenv("DERATE_NVML_LIBRARY");
}

TEST(NvmlLibrary, AnotherLibraryLacksTheFunctions) {
  const auto library = NvmlLibrary::load("libm.so.6");
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, Errc::function_missing);
  EXPECT_NE(library.error().message.find("libm.so.6: "), std::string::npos);
  EXPECT_NE(library.error().message.find("nvmlInit_v2"), std::string::npos);
}

TEST(NvmlLibrary, InitialisesAndShutsDown) {
  StagedNvml fake;
  {
    const auto library = NvmlLibrary::create(StagedNvml::functions());
    ASSERT_TRUE(library.ok());
    EXPECT_EQ(fake.initialised, 1);
    EXPECT_EQ((*library)->driver_version(), "570.0.0");
  }
  EXPECT_EQ(fake.initialised, 0);
}

TEST(NvmlLibrary, DriverNotLoaded) {
  StagedNvml fake;
  fake.failing["nvmlInit_v2"] = Return::driver_not_loaded;
  const auto library = NvmlLibrary::create(StagedNvml::functions());
  ASSERT_FALSE(library.ok());
  EXPECT_EQ(library.error().code, Errc::driver_not_loaded);
  EXPECT_TRUE(library.error().message.starts_with("the NVIDIA driver is not loaded"));
  EXPECT_EQ(fake.initialised, 0);

  fake.failing["nvmlInit_v2"] = Return::lib_rm_version_mismatch;
  EXPECT_EQ(NvmlLibrary::create(StagedNvml::functions()).error().code, Errc::driver_not_loaded);
  fake.failing["nvmlInit_v2"] = Return::no_permission;
  EXPECT_EQ(NvmlLibrary::create(StagedNvml::functions()).error().code, Errc::no_permission);
}

TEST(NvmlLibrary, ErrorsNameTheCallAndUseNvmlsWords) {
  NvmlFunctions functions = StagedNvml::functions();
  EXPECT_EQ(nvml_error(functions, Return::gpu_is_lost, "nvmlDeviceGetName").message,
            "nvmlDeviceGetName: GPU is lost (NVML error 15)");
  functions.error_string = nullptr;
  EXPECT_EQ(nvml_error(functions, Return::gpu_is_lost, "nvmlDeviceGetName").message,
            "nvmlDeviceGetName failed (NVML error 15)");

  const auto code_of = [&](Return code) { return nvml_error(functions, code, "x").code; };
  EXPECT_EQ(code_of(Return::not_supported), Errc::not_supported);
  EXPECT_EQ(code_of(Return::no_permission), Errc::no_permission);
  EXPECT_EQ(code_of(Return::not_found), Errc::not_found);
  EXPECT_EQ(code_of(Return::gpu_is_lost), Errc::gpu_lost);
  EXPECT_EQ(code_of(Return::unknown), Errc::query_failed);
  EXPECT_EQ(code_of(Return{4711}), Errc::query_failed);
}

}  // namespace
}  // namespace derate
