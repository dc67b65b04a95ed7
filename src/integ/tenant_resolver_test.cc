#include "integ/tenant_resolver.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "base/printing.h"

namespace derate {
namespace {

const std::string kPodUid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const std::string kContainerId = std::string(64, 'c');
const std::string kGpuUuid = "GPU-51a00000-0000-0000-0000-000000000001";

std::string stat_text(std::int64_t pid, const std::string& name, std::uint64_t start) {
  return fmt::format("{} ({}) S 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 {} 0 0\n", pid, name, start);
}

struct FakeProcess {
  std::string name = "train";
  std::uint64_t start = 100;
  std::uint32_t uid = 1000;
  std::string cgroup = "0::/system.slice/x.service\n";
  std::string environment;
  bool readable = true;  // but for its stat
};

// A machine of our own making, which counts what it is asked.
struct Machine {
  std::map<std::int64_t, FakeProcess> processes;
  std::map<std::string, PodName> pods;
  int reads = 0, names = 0;
  FakeClock clock;

  TenantReaders readers() {
    TenantReaders out;
    out.proc = [this](std::int64_t pid, std::string_view file) -> std::optional<std::string> {
      const auto found = processes.find(pid);
      if (found == processes.end()) return std::nullopt;
      const FakeProcess& process = found->second;
      if (file == "stat") return stat_text(pid, process.name, process.start);
      ++reads;
      if (!process.readable) return std::nullopt;
      if (file == "status") return fmt::format("Name:\tx\nUid:\t{0}\t{0}\t{0}\n", process.uid);
      return file == "cgroup" ? process.cgroup : process.environment;
    };
    out.user_name = [this](std::uint32_t uid) -> std::optional<std::string> {
      ++names;
      if (uid == 1000) return "ada";
      return std::nullopt;
    };
    out.pod_name = [this](const std::string& uid) -> std::optional<PodName> {
      const auto found = pods.find(uid);
      if (found == pods.end()) return std::nullopt;
      return found->second;
    };
    return out;
  }
};

GpuId gpu() {
  GpuId out;
  out.uuid = kGpuUuid;
  return out;
}

GpuProcess listed(std::int64_t pid, std::string name = "", std::optional<int> instance = {}) {
  GpuProcess out;
  out.pid = pid;
  out.name = std::move(name);
  out.gpu_instance = instance;
  return out;
}

Tenancy of(std::vector<GpuProcess> processes, std::vector<GpuInstance> instances = {}) {
  Tenancy out;
  out.mig = !instances.empty();
  out.processes = std::move(processes);
  out.instances = std::move(instances);
  return out;
}

GpuInstance instance(int id, std::string uuid, std::string profile = "1g.18gb") {
  GpuInstance out;
  out.id = id;
  out.uuid = std::move(uuid);
  out.profile = std::move(profile);
  return out;
}

PodDevice given(const std::string& pod, const std::string& name = kGpuUuid) {
  return {{"lab", pod}, "main", "nvidia.com/gpu", name};
}

std::string in_pod(const std::string& uid = kPodUid) {
  return "0::/kubepods/pod" + uid + "/" + kContainerId + "\n";
}

struct TenantResolverTest : testing::Test {
  Machine machine;
  TenantResolver resolver{machine.readers(), machine.clock};

  NamedTenant one(std::int64_t pid, std::string name = "") {
    return resolver.name(gpu(), of({listed(pid, std::move(name))})).processes.at(0);
  }
};

// Processes come, go, die unseen and have their PIDs given out again, instances too: a key is the
// same for life and never used for another, and what is kept is of the last list.
RC_GTEST_PROP(BookProp, AKeyIsOneTenantsForLife, ()) {
  Machine machine;
  TenantResolver resolver(machine.readers(), machine.clock);
  std::map<std::string, std::uint64_t> owner;  // of a key, by start
  std::map<std::uint64_t, std::string> key;
  std::uint64_t born = 100;
  const int ticks = *rc::gen::inRange(1, 40);
  for (int tick = 0; tick < ticks; ++tick) {
    std::vector<GpuProcess> list;
    for (int pid = 1; pid < 9; ++pid) {
      if (*rc::gen::arbitrary<bool>()) continue;
      if (machine.processes.count(pid) == 0 || *rc::gen::inRange(0, 4) == 0)
        machine.processes[pid].start = ++born;
      list.push_back(listed(pid));
    }
    const auto names = resolver.name(gpu(), of(list));
    RC_ASSERT(names.processes.size() == list.size());
    RC_ASSERT(resolver.size() == list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::uint64_t start = machine.processes[list[i].pid].start;
      RC_ASSERT(owner.emplace(names.processes[i].key, start).first->second == start);
      RC_ASSERT(key.emplace(start, names.processes[i].key).first->second == names.processes[i].key);
      RC_ASSERT(names.processes[i].labels.pid == list[i].pid);
    }
  }
}

// Keys on one GPU differ whatever is listed; nothing in a label breaks a document.
RC_GTEST_PROP(BookProp, KeysDifferAndLabelsArePrintable, ()) {
  Machine machine;
  TenantResolver resolver(machine.readers(), machine.clock);
  std::vector<GpuProcess> list;
  for (const auto& [pid, name] : *rc::gen::container<std::vector<std::pair<int, std::string>>>(
           rc::gen::pair(rc::gen::inRange(-1, 5), rc::gen::arbitrary<std::string>()))) {
    if (pid > 2) machine.processes[pid].name = name;
    list.push_back(listed(pid, *rc::gen::arbitrary<bool>() ? name : ""));
  }
  std::set<std::string> keys;
  for (const NamedTenant& tenant : resolver.name(gpu(), of(list)).processes) {
    RC_ASSERT(keys.insert(tenant.key).second);
    for (const std::string* text : {&tenant.key, &tenant.labels.process})
      RC_ASSERT(*text == printing_text(*text));
    RC_ASSERT(tenant.labels.process.size() <= 128);
  }
}

TEST_F(TenantResolverTest, AHundredThousandProcessesLeaveNothingBehind) {
  constexpr int kTicks = 1'000;
  constexpr int kEach = 100;
  std::vector<GpuProcess> list(kEach);
  std::size_t most = 0;
  std::int64_t pid = 1;
  for (int tick = 0; tick < kTicks; ++tick) {
    machine.processes.clear();
    for (GpuProcess& process : list) {
      process.pid = pid++;
      machine.processes[process.pid].uid = static_cast<std::uint32_t>(pid);
    }
    ASSERT_EQ(resolver.name(gpu(), of(list)).processes.size(), list.size());
    most = std::max(most, resolver.size());
  }
  EXPECT_EQ(most, list.size());
  resolver.name(gpu(), of({}));
  EXPECT_EQ(resolver.size(), 0U);
}

TEST_F(TenantResolverTest, AProcessIsReadOnceAndAgainOnlyWhenItsPidIsAnothers) {
  machine.processes[7] = {};
  const NamedTenant first = one(7, "/usr/bin/python3 train.py --token=secret");
  EXPECT_EQ(first.key, "pid:100:7");
  EXPECT_EQ(first.labels, (TenantLabels{7, "python3", "ada", "", "", "", "", ""}));
  const int reads = machine.reads;
  EXPECT_EQ(one(7), first);
  EXPECT_EQ(machine.reads, reads);
  machine.processes[7].start = 101;
  machine.processes[7].uid = 4711;
  const NamedTenant second = one(7);
  EXPECT_EQ(second.key, "pid:101:7");
  EXPECT_EQ(second.labels, (TenantLabels{7, "train", "4711", "", "", "", "", ""}));
}

TEST_F(TenantResolverTest, UsersAreAskedForOnce) {
  for (const int pid : {1, 2, 3}) {
    machine.processes[pid] = {};
    one(pid);
  }
  EXPECT_EQ(machine.names, 1);
}

TEST_F(TenantResolverTest, AProcessThatEndsWhileItIsListedStaysWhoItWas) {
  machine.processes[7] = {};
  const NamedTenant before = one(7);
  machine.processes.clear();
  EXPECT_EQ(one(7), before);
}

TEST_F(TenantResolverTest, OneThatCannotBeReadIsItsListingAndNobodys) {
  machine.clock.step_wall(std::chrono::seconds(1000));
  const NamedTenant unknown = one(7);
  EXPECT_EQ(unknown.key, "pid:seen-1000:7");
  EXPECT_EQ(unknown.labels, (TenantLabels{7, "", "", "", "", "", "", ""}));
  EXPECT_EQ(one(7).key, unknown.key);
  resolver.name(gpu(), of({}));
  EXPECT_EQ(one(7).key, "pid:seen-1001:7");  // the same second
}

TEST_F(TenantResolverTest, OfOneWhoseFilesAreClosedTheKeyAndTheNameAreKnown) {
  machine.processes[7].readable = false;
  EXPECT_EQ(one(7), (NamedTenant{"pid:100:7", {7, "train", "", "", "", "", "", ""}}));
}

TEST_F(TenantResolverTest, ANameWithParenthesesDoesNotHideTheStart) {
  machine.processes[7].name = "a) R 1 1 (b";
  EXPECT_EQ(one(7), (NamedTenant{"pid:100:7", {7, "a) R 1 1 (b", "ada", "", "", "", "", ""}}));
}

TEST_F(TenantResolverTest, SimulatedProcessesHaveTheirNames) {
  const auto names =
      resolver.name(gpu(), of({listed(0, "bert"), listed(0, "bert"), listed(0, "gpt")}));
  EXPECT_EQ(names.processes[0].key, "name:bert");
  EXPECT_EQ(names.processes[1].key, "name:bert#2");
  EXPECT_EQ(names.processes[2].key, "name:gpt");
  EXPECT_EQ(names.processes[0].labels.process, "bert");
  EXPECT_FALSE(names.processes[0].labels.pid);
}

// In any script. Characters that turn the direction of writing or cannot be seen are not kept.
TEST_F(TenantResolverTest, NamesOfProgramsStayTwoNames) {
  std::int64_t pid = 6;
  const auto process_of = [&](const std::string& name) { return one(++pid, name).labels.process; };
  EXPECT_EQ(process_of("\u05d0\u05d1"), "\u05d0\u05d1");
  EXPECT_NE(process_of("\U0001F680"), process_of("\U0001F40C"));
  EXPECT_EQ(process_of("x\u202egpj.exe"), "x?gpj.exe");
  EXPECT_EQ(process_of("a\xff"), "a?");
}

TEST_F(TenantResolverTest, TheJobIsOfTheControlGroupElseOfTheEnvironment) {
  machine.processes[7].environment = std::string("A=1\0SLURM_JOB_ID=6\0", 19);
  EXPECT_EQ(one(7).labels.job, "6");
  machine.processes[8] = machine.processes[7];
  machine.processes[8].cgroup = "4:freezer:/slurm/uid_1/job_5/step_0\n";
  EXPECT_EQ(one(8).labels.job, "5");
}

// What it is said to be of comes last, and may come late.
TEST_F(TenantResolverTest, WhereTheMachineTellsNoJobItsUserMay) {
  machine.processes[7].environment = std::string("SLURM_JOB_ID=6\0", 15);
  machine.processes[8] = {};
  const Tenancy both = of({listed(7), listed(8)});
  EXPECT_EQ(resolver.name(gpu(), both).processes[1].labels.job, "");
  const auto names = resolver.name(gpu(), both, {{7, {"4"}}, {8, {"5\n"}}});
  EXPECT_EQ(names.processes[0].labels.job, "6");
  EXPECT_EQ(names.processes[1].labels.job, "5?");
  // A report of an earlier process with the same PID does not count.
  const auto start = machine.processes[8].start;
  EXPECT_EQ(resolver.name(gpu(), both, {{8, {"5", start}}}).processes[1].labels.job, "5");
  EXPECT_EQ(resolver.name(gpu(), both, {{8, {"5", start + 1}}}).processes[1].labels.job, "");
}

TEST_F(TenantResolverTest, ThePodIsTheOneOfItsUid) {
  machine.processes[7].cgroup = in_pod();
  machine.pods[kPodUid] = {"lab", "right"};
  resolver.know_pods({given("other")});
  const NamedTenant tenant = one(7);
  EXPECT_EQ(tenant.labels.pod, "right");
  EXPECT_EQ(tenant.labels.name_space, "lab");
  EXPECT_EQ(tenant.labels.container, "cccccccccccc");
}

TEST_F(TenantResolverTest, WithoutItTheOnlyOneThatWasGivenTheGpu) {
  machine.processes[7].cgroup = in_pod();
  machine.processes[8] = {};  // on the machine itself
  machine.processes[9].readable = false;
  const auto pod = [&](std::int64_t pid) { return one(pid).labels.pod; };
  EXPECT_EQ(pod(7), "");
  resolver.know_pods({given("a"), given("other", "GPU-else")});
  EXPECT_EQ(pod(7), "a");  // it was known before the kubelet answered
  EXPECT_EQ(pod(8), "");
  EXPECT_EQ(pod(9), "a");
  resolver.know_pods({given("a"), given("b")});
  EXPECT_EQ(pod(7), "");
  resolver.know_pods({});
  EXPECT_EQ(pod(7), "");
}

TEST_F(TenantResolverTest, AnInstanceHasWhatItsProcessesShare) {
  machine.processes[7].cgroup = machine.processes[8].cgroup = "0::/slurmstepd.scope/job_5\n";
  machine.processes[8].uid = 4711;
  machine.processes[9] = {};
  const auto names = resolver.name(gpu(), of({listed(7, "", 1), listed(8, "", 1), listed(9, "", 2)},
                                             {instance(1, "MIG-a"), instance(2, "MIG-b")}));
  EXPECT_EQ(names.instances[0],
            (NamedTenant{"mig:MIG-a", {std::nullopt, "train", "", "", "", "", "5", "MIG-a"}}));
  EXPECT_EQ(names.instances[1],
            (NamedTenant{"mig:MIG-b", {9, "train", "ada", "", "", "", "", "MIG-b"}}));
  EXPECT_EQ(names.processes[0].labels.instance, "MIG-a");
}

TEST_F(TenantResolverTest, APodOfTheSameNameElsewhereIsNotTheSame) {
  const std::string other = "1" + kPodUid.substr(1);
  machine.processes[7].cgroup = in_pod();
  machine.processes[8].cgroup = in_pod(other);
  machine.pods[kPodUid] = {"lab", "web"};
  machine.pods[other] = {"shop", "web"};
  const auto names =
      resolver.name(gpu(), of({listed(7, "", 1), listed(8, "", 1)}, {instance(1, "MIG-a")}));
  EXPECT_EQ(names.instances[0].labels.name_space, "");
  EXPECT_EQ(names.instances[0].labels.pod, "");
}

TEST_F(TenantResolverTest, AnEmptyInstanceIsThePodsThatItWasGivenTo) {
  resolver.know_pods({given("a", "MIG-a")});
  const auto names = resolver.name(gpu(), of({}, {instance(1, "MIG-a"), instance(2, "MIG-b")}));
  EXPECT_EQ(names.instances[0].labels.pod, "a");
  EXPECT_EQ(names.instances[1].labels.pod, "");
}

TEST_F(TenantResolverTest, AnInstanceWithoutUuidIsNewWhenItsIdIsListedAnewOrIsOfAnotherKind) {
  const auto key = [&](std::vector<GpuInstance> instances) {
    return resolver.name(gpu(), of({}, std::move(instances))).instances.at(0).key;
  };
  const std::string first = key({instance(3, "")});
  EXPECT_EQ(first, "gi:3:1");
  EXPECT_EQ(key({instance(3, "")}), first);
  EXPECT_EQ(key({instance(3, "", "2g.35gb")}), "gi:3:2");
  resolver.name(gpu(), of({}));
  EXPECT_EQ(key({instance(3, "", "2g.35gb")}), "gi:3:3");
}

TEST_F(TenantResolverTest, AGpuThatIsGoneIsForgotten) {
  machine.processes[7] = {};
  one(7);
  EXPECT_EQ(resolver.size(), 1U);
  resolver.forget(kGpuUuid);
  EXPECT_EQ(resolver.size(), 0U);
}

// --- This machine --------------------------------------------------------------------------------

TEST(MachineReaders, WeAreWhoWeAre) {
  FakeClock clock;
  TenantResolver resolver(machine_readers(), clock);
  const auto tenant = resolver.name(gpu(), of({listed(::getpid())})).processes.at(0);
  EXPECT_TRUE(tenant.key.starts_with("pid:")) << tenant.key;
  EXPECT_FALSE(tenant.key.starts_with("pid:seen")) << tenant.key;
  EXPECT_EQ(tenant.labels.process, "integ_test");
  const auto name = machine_readers().user_name(::getuid());
  EXPECT_EQ(tenant.labels.user, name.value_or(std::to_string(::getuid())));
}

TEST(MachineReaders, WhichPidsWeSeeCanBeToldOnLinux) {
  EXPECT_TRUE(in_first_pid_namespace().has_value());
}

TEST(MachineReaders, WhatIsNotThereIsEmpty) {
  const auto readers = machine_readers("/proc", "/nowhere");
  EXPECT_FALSE(readers.proc(-1, "stat"));
  EXPECT_FALSE(readers.user_name(4'000'000'001U));
  EXPECT_FALSE(readers.pod_name(kPodUid));
}

TEST(MachineReaders, APodsLogFolderNamesIt) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("derate-pod-logs-{}", ::getpid());
  for (const std::string& name :
       {"lab_web-0_" + kPodUid, "lab_x_y_" + kPodUid, "__" + kPodUid, std::string("a")})
    std::filesystem::create_directories(folder / name);
  const auto readers = machine_readers("/proc", folder.string());
  EXPECT_EQ(readers.pod_name(kPodUid), (PodName{"lab", "web-0"}));
  EXPECT_FALSE(readers.pod_name("1" + kPodUid.substr(1)));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace derate
