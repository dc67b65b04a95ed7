#include "integ/kube/pod_resources.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace derate {
namespace {

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out += static_cast<char>(value);
}

std::string text_field(std::uint64_t number, const std::string& bytes) {
  return varint(number << 3 | 2) + varint(bytes.size()) + bytes;
}

// A field that we know nothing of, of every kind; or none.
std::string other_field() {
  const auto number = *rc::gen::inRange<std::uint64_t>(20, 1 << 29);
  switch (*rc::gen::inRange(0, 6)) {
    case 0:
      return varint(number << 3) + varint(*rc::gen::arbitrary<std::uint64_t>());
    case 1:
      return varint(number << 3 | 1) + std::string(8, '\xff');
    case 2:
      return varint(number << 3 | 5) + std::string(4, '\xff');
    case 3:
      return text_field(number, *rc::gen::arbitrary<std::string>());
    default:
      return "";
  }
}

std::string joined(std::vector<std::string> fields) {
  fields.push_back(other_field());
  std::string out;
  for (const std::string& field : fields) out += field;
  return out;
}

std::string any_name() {
  return *rc::gen::resize(20, rc::gen::container<std::string>(rc::gen::inRange('a', 'z')));
}

// A pod as it travels, and what is to be read of it.
std::string any_pod(std::vector<PodDevice>& expected) {
  PodDevice device{{any_name(), any_name()}, "", "", ""};
  std::vector<std::string> containers;
  for (int c = *rc::gen::inRange(0, 3); c > 0; --c) {
    device.container = any_name();
    std::vector<std::string> of_container = {text_field(1, device.container)};
    for (int r = *rc::gen::inRange(0, 3); r > 0; --r) {
      device.resource = any_name();
      std::vector<std::string> of_resource = {text_field(1, device.resource)};
      for (int d = *rc::gen::inRange(0, 4); d > 0; --d) {
        device.device = any_name();
        of_resource.push_back(text_field(2, device.device));
        expected.push_back(device);
      }
      of_container.push_back(text_field(2, joined(of_resource)));
    }
    containers.push_back(text_field(3, joined(of_container)));
  }
  const std::string names = text_field(2, device.pod.name_space) + text_field(1, device.pod.pod);
  // Fields come in any order: the names may follow what they name.
  return *rc::gen::arbitrary<bool>() ? names + joined(containers) : joined(containers) + names;
}

RC_GTEST_PROP(PodResourcesProp, WhatWasWrittenIsRead, ()) {
  std::vector<PodDevice> expected;
  std::vector<std::string> pods;
  for (int p = *rc::gen::inRange(0, 4); p > 0; --p)
    pods.push_back(text_field(1, any_pod(expected)));
  const auto devices = parse_pod_resources(joined(pods));
  RC_ASSERT(devices.ok());
  RC_ASSERT(*devices == expected);
}

RC_GTEST_PROP(PodResourcesProp, WhatIsCutOffIsRefusedOrShorter, ()) {
  std::vector<PodDevice> expected;
  std::string message = text_field(1, any_pod(expected)) + text_field(1, any_pod(expected));
  message.resize(*rc::gen::inRange<std::size_t>(0, message.size()));
  const auto devices = parse_pod_resources(message);
  if (!devices.ok()) {
    RC_ASSERT(devices.error().code == Errc::bad_data);
  } else {
    RC_ASSERT(devices->size() <= expected.size());
  }
}

RC_GTEST_PROP(PodResourcesProp, AnyBytesAreReadOrRefused, (const std::string& bytes)) {
  for (const std::string& message :
       {bytes, text_field(1, bytes), text_field(1, text_field(3, text_field(2, bytes)))}) {
    const auto devices = parse_pod_resources(message);
    RC_ASSERT((devices.ok() || devices.error().code == Errc::bad_data));
  }
}

std::string one_device(const std::string& pod, const std::string& device) {
  return text_field(1, text_field(1, pod) + text_field(3, text_field(2, text_field(2, device))));
}

TEST(PodResources, NamesHaveTheirLongest) {
  EXPECT_TRUE(parse_pod_resources(one_device(std::string(253, 'a'), "d")).ok());
  EXPECT_FALSE(parse_pod_resources(one_device(std::string(254, 'a'), "d")).ok());
  EXPECT_FALSE(parse_pod_resources(one_device("a", std::string(254, 'd'))).ok());
}

TEST(PodResources, MoreDevicesThanAMachineHasAreRefused) {
  std::string devices;
  for (int i = 0; i < 65536; ++i) devices += text_field(2, "");
  const auto answer = [](const std::string& ids) {
    return text_field(1, text_field(3, text_field(2, ids)));
  };
  const auto most = parse_pod_resources(answer(devices));
  ASSERT_TRUE(most.ok());
  EXPECT_EQ(most->size(), 65536U);
  EXPECT_FALSE(parse_pod_resources(answer(devices + text_field(2, ""))).ok());
}

TEST(PodResources, ErrorsSayWhatIsWrong) {
  const auto error = [](const std::string& message) {
    const auto devices = parse_pod_resources(message);
    return devices.ok() ? "" : devices.error().message;
  };
  EXPECT_EQ(error("\x0a\x05x"), "pod-resources answer: the last 3 bytes are no whole field");
  EXPECT_EQ(error("\x0b"), "pod-resources answer: a field of kind 3, allowed are 0, 1, 2 and 5");
  EXPECT_EQ(error("\x08"), "pod-resources answer: the last 1 bytes are no whole field");
  EXPECT_EQ(error(std::string("\x00\x00", 2)), "pod-resources answer: a field of number 0");
  EXPECT_EQ(error("\x08" + std::string(11, '\xff')),
            "pod-resources answer: a number of more than 64 bits");
}

}  // namespace
}  // namespace derate
