#include "integ/kube/pod_roster.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace derate {
namespace {

using namespace std::chrono_literals;
using ApiPods = std::vector<ApiPod>;
using Devices = std::vector<PodDevice>;

ApiPod pod(const std::string& name, const std::string& uid, const std::string& delta = "0.1") {
  ApiPod out{.name = {"lab", name}, .uid = uid, .finished = false, .annotations = {}};
  if (!delta.empty()) out.annotations = {{"delta", delta}};
  return out;
}

PodDevice device(const std::string& pod_name, const std::string& gpu) {
  return {{"lab", pod_name}, "main", "nvidia.com/gpu", gpu};
}

// A round of the watch at a time.
void round(PodRoster& roster, std::optional<Devices> devices, std::optional<ApiPods> pods,
           Instant now) {
  roster.take_devices(std::move(devices), now);
  roster.take_pods(std::move(pods), now);
}

TEST(PodRoster, ANewPodHasItsDevicesFromTheSecondRoundOn) {
  PodRoster roster;
  roster.take_pods(std::optional(ApiPods{pod("a", "u1")}), Instant{});
  EXPECT_TRUE(roster.wants_devices());
  EXPECT_TRUE(roster.is_waiting());
  EXPECT_TRUE(roster.requests(Instant{}).empty());
  round(roster, Devices{device("a", "GPU-1"), device("b", "GPU-2")}, ApiPods{pod("a", "u1")},
        Instant{} + 1s);
  const auto requests = roster.requests(Instant{} + 1s);
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0].uid, "u1");
  EXPECT_EQ(requests[0].devices, Devices{device("a", "GPU-1")});
  EXPECT_EQ(requests[0].wish, (PodWish{true, 0.1, ""}));
  EXPECT_FALSE(roster.is_waiting());
}

// A pod of a StatefulSet comes back under its name, on another GPU. Its devices are listed before
// it is there: they are the earlier pod's.
TEST(PodRoster, DevicesOfAnEarlierPodOfTheNameAreNotTheNewPods) {
  PodRoster roster;
  round(roster, Devices{}, ApiPods{pod("db-0", "u1")}, Instant{});
  round(roster, Devices{device("db-0", "GPU-1")}, ApiPods{pod("db-0", "u2")}, Instant{} + 1s);
  EXPECT_TRUE(roster.requests(Instant{} + 1s).empty());
  EXPECT_TRUE(roster.is_waiting());
  round(roster, Devices{device("db-0", "GPU-2")}, ApiPods{pod("db-0", "u2")}, Instant{} + 2s);
  ASSERT_EQ(roster.requests(Instant{} + 2s).size(), 1U);
  EXPECT_EQ(roster.requests(Instant{} + 2s)[0].devices[0].device, "GPU-2");
}

TEST(PodRoster, APodThatIsGoneRequestsNothing) {
  PodRoster roster;
  const Devices devices{device("a", "GPU-1")};
  round(roster, devices, ApiPods{pod("a", "u1")}, Instant{});
  round(roster, devices, ApiPods{pod("a", "u1")}, Instant{} + 1s);
  ASSERT_EQ(roster.requests(Instant{} + 1s).size(), 1U);
  round(roster, devices, ApiPods{}, Instant{} + 2s);
  EXPECT_TRUE(roster.requests(Instant{} + 2s).empty());
  ApiPod ended = pod("a", "u1");
  ended.finished = true;
  round(roster, devices, ApiPods{ended}, Instant{} + 3s);
  EXPECT_TRUE(roster.requests(Instant{} + 3s).empty());
  EXPECT_FALSE(roster.wants_devices());
}

TEST(PodRoster, OfTwoPodsWithOneNameOrOneUidNeitherCounts) {
  const Devices devices{device("a", "GPU-1"), device("b", "GPU-2")};
  for (const ApiPods& pods :
       {ApiPods{pod("a", "u1"), pod("a", "u2")}, ApiPods{pod("a", "u1"), pod("a", "u2", "")},
        ApiPods{pod("a", "u1"), pod("b", "u1")}, ApiPods{pod("a", "u1"), pod("b", "u1", "")}}) {
    PodRoster roster;
    for (int i = 0; i < 3; ++i) round(roster, devices, pods, Instant{} + i * 1s);
    EXPECT_TRUE(roster.requests(Instant{} + 2s).empty());
    EXPECT_FALSE(roster.problems().empty());
  }
  // The finished one holds nothing.
  ApiPod ended = pod("a", "u2");
  ended.finished = true;
  PodRoster roster;
  for (int i = 0; i < 2; ++i) round(roster, devices, ApiPods{ended, pod("a", "u1")}, Instant{});
  EXPECT_EQ(roster.requests(Instant{}).size(), 1U);
}

TEST(PodRoster, TheLastAnswersCountForFiveMinutes) {
  const auto fails = [] { return Error{Errc::query_failed, "no answer"}; };
  PodRoster roster;
  const Devices devices{device("a", "GPU-1")};
  for (int i = 0; i < 2; ++i) round(roster, devices, ApiPods{pod("a", "u1")}, Instant{});
  roster.take_devices(fails(), Instant{} + 1s);
  roster.take_pods(fails(), Instant{} + 1s);
  round(roster, std::nullopt, std::nullopt, Instant{} + 2s);
  EXPECT_EQ(roster.requests(Instant{} + PodRoster::kKeep).size(), 1U);
  EXPECT_TRUE(roster.requests(Instant{} + PodRoster::kKeep + 1ns).empty());
  for (int i = 0; i < 2; ++i) round(roster, devices, ApiPods{pod("a", "u1")}, Instant{} + 10min);
  EXPECT_EQ(roster.requests(Instant{} + 10min).size(), 1U);
}

// A static pod's UID is that of its file.
TEST(PodRoster, AUidThatComesBackHasNoOldDevices) {
  PodRoster roster;
  for (int i = 0; i < 2; ++i)
    round(roster, Devices{device("a", "GPU-1")}, ApiPods{pod("a", "u1")}, Instant{});
  roster.take_pods(std::optional(ApiPods{}), Instant{} + 1s);
  roster.take_pods(std::optional(ApiPods{pod("a", "u1")}), Instant{} + 2s);
  EXPECT_TRUE(roster.requests(Instant{} + 2s).empty());
}

TEST(PodRoster, AKubeletThatListsNoDeviceHasJustStarted) {
  PodRoster roster;
  for (int i = 0; i < 2; ++i)
    round(roster, Devices{device("a", "GPU-1")}, ApiPods{pod("a", "u1")}, Instant{});
  round(roster, Devices{}, ApiPods{pod("a", "u1")}, Instant{} + 1s);
  ASSERT_EQ(roster.requests(Instant{} + 1s).size(), 1U);
  EXPECT_EQ(roster.requests(Instant{} + 1s)[0].devices.size(), 1U);
  round(roster, Devices{device("b", "GPU-2")}, ApiPods{pod("a", "u1")}, Instant{} + 2s);
  EXPECT_TRUE(roster.requests(Instant{} + 2s)[0].devices.empty());
}

// The devices of a pod do not change while it lives, so that its annotations go on without the
// other API.
TEST(PodRoster, AnAnnotationChangesWithoutTheDevicesAnswer) {
  PodRoster roster;
  for (int i = 0; i < 2; ++i)
    round(roster, Devices{device("a", "GPU-1")}, ApiPods{pod("a", "u1")}, Instant{});
  round(roster, std::nullopt, ApiPods{pod("a", "u1", "0.2"), pod("b", "u2")}, Instant{} + 1s);
  ASSERT_EQ(roster.requests(Instant{} + 1s).size(), 1U);
  EXPECT_EQ(roster.requests(Instant{} + 1s)[0].wish.delta, 0.2);
}

TEST(PodRoster, AWrongAnnotationIsAProblemWithThePodsName) {
  PodRoster roster;
  ApiPod typo = pod("b", "u2", "");
  typo.annotations = {{"detla", "0.1"}};
  for (int i = 0; i < 2; ++i)
    round(roster, Devices{device("a", "GPU-1")}, ApiPods{pod("a", "u1", "10%"), typo}, Instant{});
  EXPECT_TRUE(roster.requests(Instant{}).empty());
  ASSERT_EQ(roster.problems().size(), 2U);
  EXPECT_EQ(roster.problems()[0],
            "pod lab/a: annotation delta '10%': allowed is a number from 0 to 0.5");
  EXPECT_EQ(roster.problems()[1],
            "pod lab/b: annotation detla: allowed are delta, policy and govern");
}

// The truth changes at random between the calls: a request is never of a device that its UID did
// not have.
RC_GTEST_PROP(PodRoster, NoRequestHasAnotherPodsDevices, ()) {
  struct Live {
    std::string name, uid, gpu;
  };
  PodRoster roster;
  std::vector<Live> truth;
  std::vector<std::pair<std::string, std::string>> ever;  // UID and device
  int next = 0;
  const auto change = [&] {
    if (!truth.empty() && *rc::gen::inRange(0, 3) == 0)
      truth.erase(truth.begin() +
                  *rc::gen::inRange<std::ptrdiff_t>(0, std::ptrdiff_t(truth.size())));
    if (*rc::gen::inRange(0, 3) != 0) return;
    const std::string name = *rc::gen::element<std::string>("a", "b");
    if (std::any_of(truth.begin(), truth.end(),
                    [&](const Live& each) { return each.name == name; }))
      return;  // the API server lets no two live
    truth.push_back(
        {name, "u" + std::to_string(++next), *rc::gen::element<std::string>("GPU-1", "GPU-2")});
    ever.emplace_back(truth.back().uid, truth.back().gpu);
  };
  for (int i = 0; i < 30; ++i) {
    change();
    Devices devices;
    for (const Live& each : truth) devices.push_back(device(each.name, each.gpu));
    if (*rc::gen::inRange(0, 4) != 0) roster.take_devices(std::optional(devices), Instant{});
    change();
    ApiPods pods;
    for (const Live& each : truth) pods.push_back(pod(each.name, each.uid));
    if (*rc::gen::inRange(0, 4) != 0) roster.take_pods(std::optional(pods), Instant{});
    for (const PodRequest& request : roster.requests(Instant{}))
      for (const PodDevice& each : request.devices)
        RC_ASSERT(std::count(ever.begin(), ever.end(), std::pair(request.uid, each.device)) == 1);
  }
}

}  // namespace
}  // namespace derate
