#include "integ/runtime_power.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/test_folder.h"

namespace derate {
namespace {

class RuntimePowerTest : public testing::Test {
 protected:
  void put(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = folder.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void put_gpu(const std::string& bus_id, const std::string& control, const std::string& status) {
    const std::string at = "/sys/bus/pci/devices/" + bus_id;
    put(at + "/vendor", "0x10de\n");
    put(at + "/class", "0x030000\n");
    put(at + "/power/control", control + "\n");
    put(at + "/power/runtime_status", status + "\n");
  }
  RuntimePower read(const std::string& bus_id = "00000000:01:00.0") const {
    return read_runtime_power(files, bus_id, AskDriver::no);
  }

  Folder folder;
  PowerFiles files{folder.path() + "/sys", folder.path() + "/proc"};
};

TEST_F(RuntimePowerTest, SaysWhatLinuxSays) {
  const std::pair<const char*, RuntimePower> states[] = {
      {"active", RuntimePower::on},         {"resuming", RuntimePower::on},
      {"suspended", RuntimePower::off},     {"suspending", RuntimePower::off},
      {"unsupported", RuntimePower::fixed}, {"error", RuntimePower::unknown},
      {"", RuntimePower::unknown},          {"suspended now", RuntimePower::unknown}};
  for (const auto& [status, power] : states) {
    put_gpu("0000:01:00.0", "auto", status);
    EXPECT_EQ(read(), power) << status;
  }
  put_gpu("0000:01:00.0", "on", "active");
  EXPECT_EQ(read(), RuntimePower::fixed);
  put_gpu("0000:01:00.0", "perhaps", "active");
  EXPECT_EQ(read(), RuntimePower::unknown);
}

TEST_F(RuntimePowerTest, FindsTheDeviceByTheBusIdOfNvml) {
  put_gpu("0000:c1:00.0", "auto", "suspended");
  put_gpu("10001:01:00.0", "auto", "active");
  EXPECT_EQ(read("00000000:C1:00.0"), RuntimePower::off);
  EXPECT_EQ(read("00010001:01:00.0"), RuntimePower::on);
  for (const char* wrong : {"", "../../x", "00000000:c2:00.0", "0000:c1:00.0/..", "..", ":"})
    EXPECT_EQ(read(wrong), RuntimePower::unknown) << wrong;
}

// The text is of NVIDIA's driver README, chapter "PCI-Express Runtime D3 Power Management".
TEST_F(RuntimePowerTest, TheDriverMustAllowIt) {
  put_gpu("0000:01:00.0", "auto", "active");
  const std::string file = "/proc/driver/nvidia/gpus/0000:01:00.0/power";
  const auto asked = [&] { return read_runtime_power(files, "00000000:01:00.0", AskDriver::yes); };
  EXPECT_EQ(asked(), RuntimePower::fixed);  // without such a file
  put(file, "Runtime D3 status:          Enabled (fine-grained)\nVideo Memory:  Active\n");
  EXPECT_EQ(asked(), RuntimePower::on);
  for (const char* other : {"Disabled by default", "Not supported", "?", ""}) {
    put(file, std::string("Runtime D3 status:          ") + other + "\n");
    EXPECT_EQ(asked(), RuntimePower::fixed) << other;
    EXPECT_EQ(read(), RuntimePower::on) << other;
  }
  put(file, "Another text\n");
  EXPECT_EQ(asked(), RuntimePower::fixed);
}

TEST_F(RuntimePowerTest, ListsTheGpusOfTheMachine) {
  EXPECT_TRUE(nvidia_bus_ids(files).empty());
  put_gpu("0000:c1:00.0", "auto", "active");
  put_gpu("0000:01:00.0", "auto", "active");
  put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");  // its sound
  put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");
  put("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n");
  put("/sys/bus/pci/devices/0000:00:02.0/class", "0x030000\n");
  put("/sys/bus/pci/devices/broken", "");
  EXPECT_EQ(nvidia_bus_ids(files), (std::vector<std::string>{"0000:01:00.0", "0000:c1:00.0"}));
}

RC_GTEST_FIXTURE_PROP(RuntimePowerTest, UnderstandsNothingElse,
                      (const std::string& control, const std::string& status)) {
  put_gpu("0000:01:00.0", control, status);
  const RuntimePower power = read();
  RC_ASSERT(power == RuntimePower::unknown || power == RuntimePower::fixed ||
            control.starts_with("auto"));
}

}  // namespace
}  // namespace derate
