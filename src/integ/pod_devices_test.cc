#include "integ/pod_devices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

const std::string kGpu = "GPU-51a00000-0000-0000-0000-000000000001";
const std::string kMig = "MIG-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";

GpuId gpu(int index, const std::string& uuid) {
  GpuId out;
  out.index = index;
  out.uuid = uuid;
  return out;
}

PodDevice device(const std::string& pod, const std::string& name) {
  return {{"lab", pod}, "main", "nvidia.com/gpu", name};
}

// Whatever a plugin says names at most one thing, and names it the same as one replica of it.
RC_GTEST_PROP(PodDevicesProp, ANameIsOneThingOrNothing, ()) {
  const auto piece = [](std::initializer_list<std::string> usual) {
    return *rc::gen::weightedOneOf<std::string>(
        {{9, rc::gen::elementOf(std::vector<std::string>(usual))},
         {1, rc::gen::arbitrary<std::string>()}});
  };
  const std::string text = piece({"GPU-", "MIG-", "MIG-GPU-", "", "3"}) +
                           piece({"0a1b-2c", "7", "", "x"}) + piece({"", "", "/1/0", "/1"}) +
                           piece({"", "", "::3", "::"});
  const auto name = parse_device_name(text);
  RC_CLASSIFY(name.has_value());
  if (!name) return;
  RC_ASSERT((name->gpu_uuid.empty() ? 0 : 1) + (name->mig_uuid.empty() ? 0 : 1) +
                (name->gpu_index ? 1 : 0) ==
            1);
  RC_ASSERT(name->gpu_instance.has_value() == name->compute_instance.has_value());
  if (text.find("::") == std::string::npos) RC_ASSERT(parse_device_name(text + "::7") == name);
}

TEST(PodDevices, Names) {
  EXPECT_EQ(parse_device_name(kGpu)->gpu_uuid, kGpu);
  EXPECT_EQ(parse_device_name(kGpu + "::12")->gpu_uuid, kGpu);
  EXPECT_EQ(parse_device_name(kMig)->mig_uuid, kMig);
  EXPECT_EQ(parse_device_name("3")->gpu_index, 3);
  EXPECT_EQ(parse_device_name("3::0")->gpu_index, 3);
  const auto old = parse_device_name("MIG-" + kGpu + "/9/0");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->gpu_uuid, kGpu);
  EXPECT_EQ(old->gpu_instance, 9);
  EXPECT_EQ(old->compute_instance, 0);
  // A minor number and MIG's order are not NVML's index and instance ids.
  for (const std::string wrong :
       {"", "nvidia0", "nvidia0/gi0", "0:1", "GPU-", "MIG-", "-1", "12345", "GPU-a b",
        "0::", "0::x", "0::1::2", "MIG-GPU-a/1", "MIG-GPU-a//0"})
    EXPECT_FALSE(parse_device_name(wrong)) << wrong;
}

TEST(PodDevices, APodIsThereOnceHoweverOftenItWasGivenTheGpu) {
  const std::vector<PodDevice> devices = {device("b", kGpu + "::1"),
                                          device("a", kGpu + "::0"),
                                          device("b", "0"),
                                          device("c", "1"),
                                          device("d", kMig),
                                          device("e", "garbage"),
                                          {{"lab", "f"}, "main", "intel.com/gna", "0"}};
  EXPECT_EQ(pods_of_gpu(devices, gpu(0, kGpu)), (std::vector<PodName>{{"lab", "a"}, {"lab", "b"}}));
  EXPECT_EQ(pods_of_gpu(devices, gpu(2, "GPU-x")), std::vector<PodName>{});
}

TEST(PodDevices, AnInstanceByUuidOrByItsIdOnItsGpu) {
  const std::vector<PodDevice> devices = {device("a", kMig), device("b", "MIG-" + kGpu + "/5/0"),
                                          device("c", "MIG-GPU-other/5/0"), device("whole", kGpu)};
  GpuInstance instance;
  instance.id = 5;
  EXPECT_EQ(pods_of_instance(devices, gpu(0, kGpu), instance),
            (std::vector<PodName>{{"lab", "b"}}));
  instance.uuid = kMig;
  EXPECT_EQ(pods_of_instance(devices, gpu(0, kGpu), instance),
            (std::vector<PodName>{{"lab", "a"}, {"lab", "b"}}));
  instance.id = 6;
  EXPECT_EQ(pods_of_instance(devices, gpu(0, kGpu), instance),
            (std::vector<PodName>{{"lab", "a"}}));
  // Which is given as a whole is not given as an instance, and the other way round.
  EXPECT_EQ(pods_of_gpu(devices, gpu(0, kGpu)), (std::vector<PodName>{{"lab", "whole"}}));
}

}  // namespace
}  // namespace derate
