// Annotations of pods through the daemon, on simulated GPUs and virtual time: from the bytes of the
// kubelet's answers to the policy on each GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <random>

#include "device/sim/sim_mig.h"
#include "house.h"
#include "integ/kube/pod_roster.h"
#include "integ/kube/pods_api.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kGpus = 4, kMigGpu = 3;
constexpr double kObserved = -1;  // as a loss: nothing is written, which is stricter than no loss

// --- messages of the kubelet ---------------------------------------------------------------------

std::string varint(std::size_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  return out += static_cast<char>(value);
}

std::string field(int number, const std::string& bytes) {
  return varint(static_cast<std::size_t>(number) << 3 | 2) + varint(bytes.size()) + bytes;
}

using Keys = std::vector<std::pair<std::string, std::string>>;

struct TruePod {
  PodName name;
  std::string uid, phase = "Running";
  Keys annotations = {};
  std::optional<double> loss = {};  // that its annotations allow; empty: they count for nothing
  std::vector<std::string> devices = {};  // as the device plugin calls them
  std::set<int> gpus = {};                // that these prove
};

std::string message_of(const TruePod& pod) {
  std::string metadata = field(1, pod.name.pod) + field(3, pod.name.name_space) + field(5, pod.uid);
  for (const auto& [key, value] : pod.annotations)
    metadata += field(12, field(1, key) + field(2, value));
  // Between them a spec, which nobody reads.
  return field(1, metadata) + field(2, field(10, "n1")) + field(3, field(1, pod.phase));
}

// --- random pods ---------------------------------------------------------------------------------

struct Wish {
  Keys annotations;
  std::optional<double> loss;
};

std::vector<Wish> wishes(double loss_of_configuration) {
  const auto ours = [](const char* key) { return std::string("derate.dev/") + key; };
  const std::string delta = ours("delta"), policy = ours("policy"), govern = ours("govern");
  return {{{}, {}},
          {{{delta, "0.05"}}, 0.05},
          {{{delta, "0.1"}}, 0.1},
          {{{delta, "0.25"}, {"example.com/delta", "0.5"}}, 0.25},
          {{{delta, "0"}}, kObserved},
          {{{govern, "false"}}, kObserved},
          {{{delta, "0.1"}, {govern, "false"}}, kObserved},
          {{{govern, "true"}}, loss_of_configuration},
          {{{policy, "max-freq"}}, 0},
          {{{policy, "assure"}, {delta, "0.2"}}, 0.2},
          // From here on they count for nothing.
          {{{delta, "0.4"}}, {}},
          {{{policy, "efficient-fix"}}, {}},
          {{{policy, "none-of-that-name"}}, {}},
          {{{policy, "Assure!"}}, {}},
          {{{delta, "0,1"}}, {}},
          {{{delta, "nan"}}, {}},
          {{{delta, "-0.1"}}, {}},
          {{{delta, std::string("0.1\0", 4)}}, {}},
          {{{delta, "0.1"}, {govern, "maybe"}}, {}},
          {{{delta, std::string(256 << 10, '1')}}, {}},
          {{{policy, std::string(4096, 'a')}}, {}},
          {{{ours("Delta"), "0.1"}}, {}},
          {{{"derate.dev.example.com/delta", "0.1"}}, {}}};
}

struct DeviceForm {
  std::string device;
  std::optional<int> gpu;  // that it proves
};

class Draw {
 public:
  Draw(unsigned seed, std::vector<Wish> wishes, std::vector<DeviceForm> forms)
      : random_(seed), wishes_(std::move(wishes)), forms_(std::move(forms)) {}

  std::size_t below(std::size_t end) { return random_() % end; }
  template <class T>
  const T& of(const std::vector<T>& all) {
    return all[below(all.size())];
  }
  void wish(TruePod& pod) {
    const Wish& wish = of(wishes_);
    pod.annotations = wish.annotations;
    pod.loss = wish.loss;
  }
  void devices(TruePod& pod) {
    for (std::size_t i = below(3); i > 0; --i) {
      const DeviceForm& form = of(forms_);
      pod.devices.push_back(form.device);
      if (form.gpu) pod.gpus.insert(*form.gpu);
    }
  }
  // Of few names, so that they meet.
  TruePod pod(const std::string& uid) {
    static const std::vector<std::string> kSpaces{"lab", "lab", "prod", "guest"};
    static const std::vector<std::string> kNames{"a", "b", "c", "d", "e", "f"};
    static const std::vector<std::string> kPhases{"Running", "Running",   "Running",
                                                  "Pending", "Succeeded", "Failed"};
    TruePod out{.name = {of(kSpaces), of(kNames)}, .uid = uid, .phase = of(kPhases)};
    wish(out);
    devices(out);
    return out;
  }

 private:
  std::mt19937_64 random_;
  std::vector<Wish> wishes_;
  std::vector<DeviceForm> forms_;
};

// --- the house -----------------------------------------------------------------------------------

struct PodHouse : House {
  PodHouse() : House(kGpus, "H200") {
    auto instances = make_instances(sim(kMigGpu).chip(), "3g,2g", kMigGpu);
    EXPECT_TRUE(instances.ok());
    sim(kMigGpu).partition(*instances);
    mig = instances->front().uuid;
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
      TenantNames out;
      for (const GpuInstance& each : tenancy.instances) out.instances.push_back({each.uuid, {}});
      for (const GpuProcess& each : tenancy.processes)
        out.processes.push_back({std::to_string(each.pid), {}});
      return out;
    };
    pods.pods = [this] { return requests; };
    settings.kubernetes.namespaces = "lab, prod";
    start(settings);
    run(5s);  // the instances are known by then
  }

  // Of the policy without a delta of the pod's own.
  double loss_of_configuration() const { return most_loss(*choose_policy({}, settings)); }

  std::vector<DeviceForm> forms() const {
    std::vector<DeviceForm> out{{"0", {}},
                                {"1::0", {}},
                                {"nvidia2", {}},
                                {"GPU-51a00000-0000-0000-0000-999999999999", {}},
                                {"MIG-51a00000-0000-0000-9999-000000000001", {}},
                                {uuid_of(1).substr(0, uuid_of(1).size() - 1), {}},
                                {mig, kMigGpu},
                                {mig + "::1", kMigGpu}};
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      out.push_back({uuid_of(gpu), gpu});
      out.push_back({fmt::format("{}::{}", uuid_of(gpu), gpu), gpu});
    }
    return out;
  }

  void list_devices(const std::vector<TruePod>& all) {
    std::vector<PodDevice> out;
    for (const TruePod& pod : all)
      for (const std::string& device : pod.devices)
        out.push_back({pod.name, "main", "nvidia.com/gpu", device});
    roster.take_devices(std::optional(out), clock.now());
  }
  void list_pods(const std::vector<TruePod>& all) {
    PodsReader reader("derate.dev");
    for (const TruePod& pod : all) RC_ASSERT(reader.take(field(1, message_of(pod))).ok());
    auto read = std::move(reader).finish();
    RC_ASSERT(read.ok());
    roster.take_pods(std::optional(*std::move(read)), clock.now());
    requests = std::make_shared<const std::vector<PodRequest>>(roster.requests(clock.now()));
  }
  // Until the kubelet's answers are what the GPUs are governed by.
  void list(const std::vector<TruePod>& all) {
    list_pods(all);
    list_devices(all);
    list_pods(all);
    for (int i = 0; i < 4; ++i) (void)round();
  }

  // Entries of the audit log about the GPU.
  std::size_t entries(int gpu) const {
    const auto text = read_file(audit_file());
    std::size_t out = 0;
    if (!text.ok()) return out;
    for (auto at = text->find(uuid_of(gpu)); at != std::string::npos;
         at = text->find(uuid_of(gpu), at + 1))
      ++out;
    return out;
  }

  const ManagedGpu& gpu(int at) const {
    return worker->fleet().gpus()[static_cast<std::size_t>(at)];
  }
  bool by_pod(int at) const { return gpu(at).assigned && gpu(at).assigned->origin == origins::pod; }

  Settings settings;
  PodRoster roster;
  PodRequests requests;
  std::string mig;
};

// The strictest of the pods whose annotations count on that GPU, by what is true of them.
std::optional<double> strictest(const std::vector<TruePod>& all, int gpu) {
  std::optional<double> out;
  const auto unfinished = [](const TruePod& pod) {
    return pod.phase != "Succeeded" && pod.phase != "Failed";
  };
  for (const TruePod& pod : all) {
    if (!pod.loss || !pod.gpus.contains(gpu) || !unfinished(pod)) continue;
    if (pod.name.name_space != "lab" && pod.name.name_space != "prod") continue;
    const auto others = [&](const auto& same) {
      return std::count_if(all.begin(), all.end(), same) - 1;
    };
    if (others([&](const TruePod& each) { return each.uid == pod.uid; }) > 0) continue;
    if (others([&](const TruePod& each) { return each.name == pod.name && unfinished(each); }) > 0)
      continue;
    out = std::min(out.value_or(1), *pod.loss);
  }
  return out;
}

// Pods of one name share the devices that are listed under that name.
void share_devices(std::vector<TruePod>& all) {
  std::map<PodName, std::set<int>> by_name;
  for (const TruePod& pod : all) by_name[pod.name].insert(pod.gpus.begin(), pod.gpus.end());
  for (TruePod& pod : all) pod.gpus = by_name[pod.name];
}

void describe(const House& house, const std::vector<TruePod>& all) {
  for (const TruePod& pod : all) {
    RC_LOG() << pod.name.name_space << "/" << pod.name.pod << " " << pod.uid << " " << pod.phase;
    for (const auto& [key, value] : pod.annotations)
      RC_LOG() << " " << key << "=" << value.substr(0, 20);
    for (const std::string& device : pod.devices) RC_LOG() << " " << device;
    RC_LOG() << "\n";
  }
  for (const std::string& text : house.logged) RC_LOG() << text << "\n";
}

void check_gpu(PodHouse& house, int at, std::optional<double> loss, std::size_t entries) {
  const ManagedGpu& gpu = house.gpu(at);
  RC_LOG() << "GPU " << at << "\n";
  if (!loss || *loss == kObserved) {
    RC_ASSERT(house.by_pod(at) == loss.has_value());
    RC_ASSERT(gpu.policy() == nullptr);
    RC_ASSERT(house.entries(at) == entries);
    RC_ASSERT(house.trouble(at).lock.empty());
    RC_ASSERT(!house.sim(at).locked());
    return;
  }
  RC_ASSERT(house.by_pod(at));
  RC_ASSERT(gpu.policy() != nullptr);
  RC_ASSERT(std::abs(most_loss(gpu.policy()->policy) - *loss) < 1e-9);
}

// Twenty sets in each house: 2,000 in a hundred houses, and 20,000 in the thousand of `scripts/test
// --all`.
RC_GTEST_PROP(PodProperty, OnlyGpusOfPodsThatRequestItAreWrittenTo, (unsigned seed)) {
  PodHouse house;
  Draw draw(seed, wishes(house.loss_of_configuration()), house.forms());
  for (int set = 0; set < 20; ++set) {
    std::vector<TruePod> all;
    for (std::size_t i = draw.below(8); i > 0; --i)
      all.push_back(draw.pod(fmt::format("uid-{}-{}", set, draw.below(10))));
    share_devices(all);
    house.logged.clear();
    std::array<std::size_t, kGpus> entries{};
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      entries[static_cast<std::size_t>(gpu)] = house.entries(gpu);
      house.trouble(gpu).lock.clear();
    }
    house.list(all);
    describe(house, all);
    for (int gpu = 0; gpu < kGpus; ++gpu)
      check_gpu(house, gpu, strictest(all, gpu), entries[static_cast<std::size_t>(gpu)]);
    house.list({});
    for (int gpu = 0; gpu < kGpus; ++gpu) RC_ASSERT(!house.by_pod(gpu) && !house.sim(gpu).locked());
  }
}

// Pods come, go and come back under the same name with another UID and other GPUs, at any moment
// between two calls: a pod's wish reaches the GPUs that this pod has or had, and no others.
RC_GTEST_PROP(PodProperty, AWishReachesThePodsOwnGpusAlone, (unsigned seed)) {
  PodHouse house;
  Draw draw(seed, wishes(house.loss_of_configuration()), house.forms());
  std::map<PodName, TruePod> node;
  std::map<std::string, TruePod> known;  // by UID, all that ever were
  int number = 0;
  const auto listed = [&] {
    std::vector<TruePod> out;
    for (const auto& [name, pod] : node) out.push_back(pod);
    return out;
  };
  const auto change = [&] {
    for (std::size_t i = draw.below(3); i > 0; --i) {
      TruePod pod = draw.pod(fmt::format("uid-{}", number++));
      node.erase(pod.name);
      known[pod.uid] = pod;
      if (draw.below(4) != 0) node[pod.name] = std::move(pod);
    }
  };
  for (int step = 0; step < 25; ++step) {
    change();
    house.list_devices(listed());
    change();
    house.list_pods(listed());
    for (const PodRequest& request : *house.requests) {
      const TruePod& pod = known.at(request.uid);
      RC_ASSERT(request.name == pod.name);
      for (const PodDevice& device : request.devices)
        RC_ASSERT(std::count(pod.devices.begin(), pod.devices.end(), device.device) > 0);
    }
    for (int i = 0; i < 3; ++i) (void)house.round();
    for (int gpu = 0; gpu < kGpus; ++gpu) {
      if (!house.by_pod(gpu)) continue;
      const bool has = std::any_of(
          house.requests->begin(), house.requests->end(), [&](const PodRequest& request) {
            const TruePod& pod = known.at(request.uid);
            return pod.gpus.contains(gpu) && pod.loss &&
                   house.gpu(gpu).assigned->who ==
                       fmt::format("pod {}/{}", pod.name.name_space, pod.name.pod);
          });
      RC_ASSERT(has);
    }
  }
}

// --- examples ------------------------------------------------------------------------------------

TruePod asking(const PodHouse& house, int gpu, const char* delta) {
  return {.name = {"lab", "train"},
          .uid = "uid-1",
          .annotations = {{"derate.dev/delta", delta}},
          .devices = {house.uuid_of(gpu)}};
}

// An operator has assigned the GPU: a pod that wants it left alone is refused, and the stricter
// pod next to it is not.
TEST(Pods, ARefusedPodHidesNoOther) {
  PodHouse house;
  house.ask(R"({"command":"policy-set","policy":"assure","set":["delta=0.2"],"gpus":"1"})");
  TruePod alone = asking(house, 1, "0");
  alone.name.pod = "alone";
  alone.uid = "uid-2";
  house.list({asking(house, 1, "0.05"), alone});
  ASSERT_NE(house.gpu(1).policy(), nullptr);
  EXPECT_TRUE(house.by_pod(1));
  EXPECT_NEAR(most_loss(house.gpu(1).policy()->policy), 0.05, 1e-9);
}

// Authors change annotations as often as they like: a GPU's policy loses more only so often, and
// never more than any pod allows.
TEST(Pods, AnnotationsThatChangeAllTheTimeChangeAGpuSeldom) {
  PodHouse house;
  std::size_t looser = 0;
  double before = 0;
  for (int i = 0; i < 200; ++i) {
    const double loss = i % 2 == 0 ? 0.2 : 0.1;
    house.list({asking(house, 1, i % 2 == 0 ? "0.2" : "0.1")});
    ASSERT_NE(house.gpu(1).policy(), nullptr);
    const double now = most_loss(house.gpu(1).policy()->policy);
    ASSERT_LE(now, loss + 1e-9);
    looser += now > before + 1e-9 ? 1 : 0;
    before = now;
  }
  EXPECT_LE(looser, PodWishes::kMostChanges);
  EXPECT_TRUE(house.has_logged("pod lab/train: GPU 1 waits for its policy"));
  // The last request comes in the end.
  house.list({asking(house, 1, "0.2")});
  EXPECT_NEAR(most_loss(house.gpu(1).policy()->policy), 0.1, 1e-9);
  house.clock.advance(1h);
  house.list({asking(house, 1, "0.2")});
  EXPECT_NEAR(most_loss(house.gpu(1).policy()->policy), 0.2, 1e-9);
  // The GPU is given back at once, however often that happens.
  house.list({});
  EXPECT_FALSE(house.by_pod(1));
}

// Another program has the GPU's lease.
Result<UniqueFd> another(const PodHouse& house, int gpu) {
  return take_lease(house.folder + "/run", house.uuid_of(gpu), "another");
}

TEST(Pods, AFailureIsTriedAgainLessAndLessOften) {
  PodHouse house;
  auto other = another(house, 1);
  ASSERT_TRUE(other.ok());
  house.list({asking(house, 1, "0.1")});
  house.run(64s);
  EXPECT_GE(house.leases_requested, 6);
  EXPECT_LE(house.leases_requested, 8);
  EXPECT_TRUE(house.has_logged("pod lab/train: GPU 1 is not governed for it"));
  other = Error{Errc::io, "released"};
  house.run(64s);
  EXPECT_TRUE(house.by_pod(1));
}

// The GPU's lease is lost, and a second pod's request fails: what the first pod requested does not
// come back with the lease.
TEST(Pods, AFailedRequestLeavesNoEarlierOne) {
  PodHouse house;
  house.list({asking(house, 1, "0.2")});
  ASSERT_TRUE(house.by_pod(1));
  ASSERT_TRUE(std::filesystem::remove(house.folder + "/run/" + house.uuid_of(1) + ".lock"));
  auto other = another(house, 1);
  ASSERT_TRUE(other.ok());
  house.lost_leases.push_back(gpu_domain(house.uuid_of(1)));
  house.run(1s);
  EXPECT_FALSE(house.sim(1).locked());
  TruePod second = asking(house, 1, "0.05");
  second.name.pod = "second";
  second.uid = "uid-2";
  house.list({second});
  EXPECT_FALSE(house.by_pod(1));
  other = Error{Errc::io, "released"};
  house.list({});
  house.run(90s);
  EXPECT_FALSE(house.by_pod(1));
  EXPECT_FALSE(house.sim(1).locked());
}

TEST(Pods, AnAnswerThatIsTooOldCountsForNothing) {
  PodHouse house;
  const std::vector<TruePod> all{asking(house, 1, "0.1")};
  house.list(all);
  ASSERT_TRUE(house.by_pod(1));
  const Instant answered = house.clock.now();
  const auto take_nothing = [&] {
    house.roster.take_devices(Error{Errc::io, "away"}, house.clock.now());
    house.roster.take_pods(Error{Errc::io, "away"}, house.clock.now());
    house.requests =
        std::make_shared<const std::vector<PodRequest>>(house.roster.requests(house.clock.now()));
  };
  while (house.clock.now() < answered + PodRoster::kKeep - 2s) {
    take_nothing();
    house.run(1s);
    ASSERT_TRUE(house.by_pod(1));
  }
  house.run(4s);
  take_nothing();
  house.run(1s);
  EXPECT_FALSE(house.by_pod(1));
  EXPECT_FALSE(house.sim(1).locked());
}

TEST(Pods, GoOnWithTheNextDaemon) {
  PodHouse house;
  house.list({asking(house, 1, "0.1")});
  ASSERT_TRUE(house.by_pod(1));
  house.worker.reset();
  EXPECT_FALSE(house.sim(1).locked());
  EXPECT_TRUE(house.left().empty());
  house.start(house.settings);
  house.run(1s);
  EXPECT_TRUE(house.by_pod(1));
}

TEST(Pods, LoseNoMoreThanOperatorsAllow) {
  PodHouse house;
  Settings settings = house.settings;
  settings.govern = true;
  settings.policy_settings = {{"assure", "delta", "0.05", ""}};
  house.worker->reload(settings);
  house.run(1s);
  house.list({asking(house, 1, "0.1")});
  EXPECT_EQ(house.gpu(1).assigned->origin, origins::configuration);
  EXPECT_TRUE(house.has_logged("pod lab/train: GPU 1 is not governed for it"));
  house.list({asking(house, 1, "0.02")});
  EXPECT_TRUE(house.by_pod(1));
}

TEST(Pods, AnOperatorsReleaseIsNotUndoneByTheSameWish) {
  PodHouse house;
  house.list({asking(house, 1, "0.1")});
  ASSERT_TRUE(house.by_pod(1));
  EXPECT_EQ(parse_json(house.ask(request_text(Release{.gpus = "1"})))["ok"], true);
  house.run(10s);
  EXPECT_EQ(house.gpu(1).policy(), nullptr);
  EXPECT_FALSE(house.sim(1).locked());
}

}  // namespace
}  // namespace derate::cli
