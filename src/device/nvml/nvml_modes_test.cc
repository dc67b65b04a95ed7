#include "device/nvml/nvml_modes.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "device/nvml/nvml_device.h"
#include "fakenvml/abi.h"
#include "fakenvml/library_path.h"
#include "fakenvml/test_served.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using nvml::ClockType, nvml::Return;

// A GPU of that chip, its modes read through NVML, and the tools that change them.
class ModesOf {
 public:
  explicit ModesOf(const char* chip) : served_({*find_sim_chip(chip)}, 1) {
    library_ = *NvmlLibrary::load(fakenvml::kLibraryPath);
    device_ = *NvmlDevice::open(library_, 0, served_.clock());
    CHECK(library_->functions().device_by_index(0, &handle_) == Return::success);
  }
  const Capability& capability() const { return device_->capability(); }
  GpuModes read() const { return read_modes(library_->functions(), handle_); }
  // Of a sample, so much later.
  const GpuModes* sampled(Duration later) {
    served_.pass(later);
    const auto sample = device_->read({});
    return sample.ok() && (shown_ = sample->modes) ? &*shown_ : nullptr;
  }
  template <class T>
  Return set(const char* function, T value) {
    auto* const call = reinterpret_cast<Return (*)(nvml::Device, T*)>(
        dlsym(dlopen(fakenvml::kLibraryPath, RTLD_NOW | RTLD_NOLOAD), function));
    return call(handle_, &value);
  }
  Return offset(ClockType clock, int mhz) {
    return set("nvmlDeviceSetClockOffsets", nvml::ClockOffset{.clock = clock, .offset_mhz = mhz});
  }
  Return profiles(unsigned int operation, unsigned int bits) {
    return set("nvmlDeviceWorkloadPowerProfileUpdateProfiles_v1",
               nvml::ProfileUpdate{operation, {{bits}}});
  }

 private:
  fakenvml::Served served_;
  std::shared_ptr<const NvmlLibrary> library_;
  std::unique_ptr<NvmlDevice> device_;
  nvml::Device handle_ = nullptr;
  SharedModes shown_;
};

TEST(NvmlModes, AServersGpuHasNone) {
  const GpuModes modes = ModesOf("V100-SXM2").read();
  EXPECT_FALSE(modes.sm_clock_offset || modes.power_mizer || modes.power_profiles);
  EXPECT_EQ(modes.display, false);
  EXPECT_EQ(modes.virtualisation, Virtualisation::none);
  EXPECT_EQ(describe(modes), "");
  EXPECT_EQ(modes_key(modes), "");
}

TEST(NvmlModes, AGeForceHasOffsetsPowerMizerAndPerhapsADisplay) {
  EXPECT_EQ(ModesOf("RTX5060Ti").read().display, true);
  ModesOf gpu("RTX4090");
  EXPECT_EQ(gpu.read().sm_clock_offset, 0);
  EXPECT_EQ(gpu.read().power_mizer, PowerMizer::adaptive);
  EXPECT_EQ(gpu.read().display, false);
  EXPECT_EQ(describe(gpu.read()), "");
  EXPECT_EQ(gpu.offset(ClockType::graphics, 150), Return::success);
  EXPECT_EQ(gpu.offset(ClockType::memory, -200), Return::success);
  EXPECT_EQ(gpu.set("nvmlDeviceSetPowerMizerMode_v1", nvml::PowerMizerModes{.requested = 1}),
            Return::success);
  const GpuModes modes = gpu.read();
  EXPECT_EQ(modes.sm_clock_offset, 150);
  EXPECT_EQ(modes.memory_clock_offset, -200);
  EXPECT_EQ(modes.power_mizer, PowerMizer::maximum_performance);
  EXPECT_EQ(modes_key(modes), " +150 MHz memory -200 MHz");
  EXPECT_EQ(describe(modes),
            "the SM clock has an offset of +150 MHz; the memory clock has an offset of -200 MHz");
}

TEST(NvmlModes, ProfilesAreThoseRequestedEnforcedAndInConflict) {
  constexpr unsigned int kMaxQ = 1, kInference = 6, kTraining = 7;
  ModesOf gpu("B200");
  ASSERT_TRUE(gpu.read().power_profiles);
  EXPECT_EQ(*gpu.read().power_profiles, PowerProfiles{});
  EXPECT_EQ(gpu.profiles(nvml::kProfilesAdd, 1U << kMaxQ | 1U << kTraining), Return::success);
  EXPECT_EQ(gpu.profiles(nvml::kProfilesAdd, 1U << kInference), Return::success);
  const PowerProfiles profiles = *gpu.read().power_profiles;
  EXPECT_EQ(profiles.requested,
            (std::vector<std::string>{"max_q", "llm_inference", "llm_training"}));
  EXPECT_EQ(profiles.enforced, (std::vector<std::string>{"max_q", "llm_inference"}));
  ASSERT_EQ(profiles.conflicts.size(), 1u);
  EXPECT_EQ(profiles.conflicts[0],
            std::pair(std::string("llm_inference"), std::string("llm_training")));
  EXPECT_EQ(modes_key(gpu.read()), " max_q llm_inference");
  EXPECT_EQ(describe(gpu.read()),
            "power profiles requested: max_q, llm_inference, llm_training; enforced: max_q, "
            "llm_inference; llm_inference and llm_training exclude each other");
  EXPECT_EQ(gpu.profiles(nvml::kProfilesReplace, 0), Return::success);
  EXPECT_EQ(*gpu.read().power_profiles, PowerProfiles{});
}

TEST(NvmlModes, AProfileOfALaterDriverHasItsNumber) {
  NvmlFunctions nvml;
  nvml.power_profiles = [](nvml::Device, nvml::PowerProfiles* out) {
    out->requested = {{1U << 20, 0, 0, 0, 0, 0, 0, 1U << 30}};
    out->enforced = {{1U << 20}};
    return Return::success;
  };
  const PowerProfiles profiles = *read_modes(nvml, nullptr).power_profiles;
  EXPECT_EQ(profiles.requested, (std::vector<std::string>{"profile 20", "profile 254"}));
  EXPECT_EQ(profiles.enforced, (std::vector<std::string>{"profile 20"}));
}

TEST(NvmlModes, ValuesThatMakeNoSenseAreMissing) {
  NvmlFunctions nvml;
  nvml.clock_offsets = [](nvml::Device, nvml::ClockOffset* out) {
    out->offset_mhz = -1'000'000;
    return Return::success;
  };
  nvml.power_mizer = [](nvml::Device, nvml::PowerMizerModes* out) {
    out->current = 77;
    return Return::success;
  };
  nvml.virtualisation_mode = [](nvml::Device, nvml::VirtualisationMode* out) {
    *out = nvml::VirtualisationMode{9};
    return Return::success;
  };
  nvml.display_active = [](nvml::Device, nvml::EnableState*) { return Return::not_supported; };
  EXPECT_EQ(read_modes(nvml, nullptr), GpuModes{});
}

TEST(NvmlModes, ASampleHasThemAndSeesAChangeWithinAMinute) {
  ModesOf gpu("RTX4090");
  ASSERT_NE(gpu.sampled(1s), nullptr);
  EXPECT_EQ(gpu.sampled(1s)->sm_clock_offset, 0);
  ASSERT_EQ(gpu.offset(ClockType::graphics, 100), Return::success);
  EXPECT_EQ(gpu.sampled(1s)->sm_clock_offset, 0);
  EXPECT_EQ(gpu.sampled(60s)->sm_clock_offset, 100);
}

TEST(NvmlModes, ClocksAreListedForEachMemoryClock) {
  const Capability ada = ModesOf("L40S").capability();
  ASSERT_EQ(ada.memory_clocks.size(), 2u);
  EXPECT_EQ(ada.sm_clocks.size(), 155u);
  ASSERT_EQ(ada.lower_memory_clocks.size(), 1u);
  EXPECT_EQ(ada.lower_memory_clocks[0].clock, Megahertz(405));
  EXPECT_EQ(ada.lower_memory_clocks[0].sm_clocks.size(), 14u);
  EXPECT_EQ(ModesOf("A100-SXM4-40GB").capability().lower_memory_clocks.size(), 0u);
  // GDDR7 and GDDR6X have clocks above 10 GHz.
  const Capability blackwell = ModesOf("RTX5090").capability();
  EXPECT_EQ(blackwell.memory_clocks.back(), Megahertz(14001));
  EXPECT_EQ(blackwell.sm_clocks.back(), Megahertz(3090));
  EXPECT_EQ(ModesOf("RTX4090").capability().memory_clocks.back(), Megahertz(10501));
  EXPECT_EQ(ModesOf("B200").capability().lower_memory_clocks[0].sm_clocks.size(), 247u);
}

}  // namespace
}  // namespace derate
