#include "service/workloads/workload_tracker.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "device/sim/sim_device.h"
#include "service/answers/attribution_service.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A source whose lists only come once they are begun, as those of real GPUs.
class LazySource final : public TelemetrySource {
 public:
  const Capability& capability() const override { return capability_; }
  Result<Sample> read(const ReadPlan&) override { return Sample{}; }
  Result<std::vector<GpuProcess>> processes() override { return std::vector<GpuProcess>(); }
  void start_processes() override { listing = true; }
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override {
    ++polls;
    if (!std::exchange(listing, false)) return std::nullopt;
    return listed;
  }
  void start_tenancy() override { splitting = true; }
  std::optional<Result<Tenancy>> poll_tenancy() override {
    if (mute || !std::exchange(splitting, false)) return std::nullopt;
    ++answered;
    return Tenancy{};
  }
  void is_of(Architecture architecture) { capability_.architecture = architecture; }
  bool listing = false, splitting = false, mute = false;
  int polls = 0, answered = 0;
  std::vector<GpuProcess> listed;

 private:
  Capability capability_ = sim_capability(sim_chips().front(), 0);
};

// A pause and a resume free a source and make another, at the same address if memory wants it.
TEST(Sources, AreTheSameByOpeningAndNotByAddress) {
  FakeClock clock;
  LazySource source;
  AttributionService service(clock,
                             {.name = [](const auto&...) { return TenantNames(); },
                              .where = BackgroundWorker::Where::at_once},
                             attribution_service_rules(Settings{}));
  const AttributionService::Gpu first[] = {{&source, 1}}, second[] = {{&source, 2}};
  source.mute = true;
  service.step(first);
  // What was begun of the first is gone with it.
  source.mute = source.splitting = false;
  clock.sleep_until(clock.now() + 2s);
  service.step(second);
  EXPECT_EQ(source.answered, 1);
}

TEST(Sources, AListThatWasBegunOfAnotherIsNotWaitedFor) {
  FakeClock clock;
  LazySource source;
  WorkloadTracker tracker(clock, {.where = BackgroundWorker::Where::at_once});
  const WorkloadTracker::Gpu first[] = {{&source, 1}}, second[] = {{&source, 2}};
  tracker.begin_listing(first);
  source.listing = false;  // the first has gone, and what was begun of it
  (void)tracker.update(second);
  EXPECT_EQ(source.polls, 0);
}

// A GPU on which these processes work, as it was last listed.
struct ListedGpu {
  FakeClock clock;
  LazySource source;
  std::optional<WorkloadTracker> tracker;

  ListedGpu(std::vector<GpuProcess> processes, const std::map<std::int64_t, ProcessFacts>& facts,
            Architecture architecture = Architecture::hopper) {
    source.is_of(architecture);
    source.listed = std::move(processes);
    ProcessReaders readers;
    readers.facts = [facts](std::int64_t pid) -> std::optional<ProcessFacts> {
      const auto at = facts.find(pid);
      if (at == facts.end()) return std::nullopt;
      ProcessFacts out = at->second;
      out.pid = pid;
      if (out.started == 0) out.started = 1;
      return out;
    };
    readers.start = [](std::int64_t) { return 1; };
    readers.ancestors = [](const ProcessFacts& process) { return process.ancestors; };
    readers.asked = [](std::int64_t) { return ""; };
    readers.hold = [](std::int64_t) { return ProcessHandle(); };
    tracker.emplace(clock,
                    WorkloadTracker::Options{
                        .readers = readers,
                        .person = [](std::uint32_t uid) { return uid >= 100'000 ? 1000u : uid; },
                        .where = BackgroundWorker::Where::at_once});
    const WorkloadTracker::Gpu gpus[] = {{&source, 1}};
    for (int i = 0; i < 3; ++i) {
      clock.advance(2s);
      tracker->begin_listing(gpus);
      (void)tracker->update(gpus);
    }
  }
  std::string uuid() const { return source.capability().id.uuid; }
};

GpuUsers users_of(std::vector<GpuProcess> processes,
                  const std::map<std::int64_t, ProcessFacts>& facts,
                  Architecture architecture = Architecture::hopper) {
  const ListedGpu gpu(std::move(processes), facts, architecture);
  return gpu.tracker->users_of(gpu.uuid());
}

ProcessFacts of_user(std::uint32_t uid, std::optional<std::uint32_t> works_for = {}) {
  ProcessFacts out;
  out.uid = uid;
  out.works_for = works_for;
  return out;
}

// docs/tenants.md has the rule.
TEST(UsersOfAGpu, HelpersOfTheSystemAreNoOtherUser) {
  const GpuProcess work{.pid = 10, .name = "train"};
  const GpuProcess display{.pid = 11, .name = "/usr/lib/xorg/Xorg", .computes = false};
  const GpuProcess mps{.pid = 12, .name = "/usr/bin/nvidia-cuda-mps-server"};
  using Uids = std::set<std::uint32_t>;
  const std::map<std::int64_t, ProcessFacts> facts{
      {10, of_user(1000)}, {11, of_user(0)}, {12, of_user(0)}};
  EXPECT_EQ(users_of({work, display, mps}, facts).uids, Uids{1000});
  EXPECT_EQ(users_of({display}, facts).uids, Uids{});
  // No client of the MPS server is listed, so it may work for any user.
  EXPECT_EQ(users_of({mps}, facts).uids, Uids{0});
  // Processes of another user are no helpers, and root's work counts as root's.
  EXPECT_EQ(users_of({work, display}, {{10, of_user(1000)}, {11, of_user(1001)}}).uids,
            (Uids{1000, 1001}));
  EXPECT_EQ(users_of({work, mps}, {{10, of_user(1000)}, {12, of_user(1001)}}).uids,
            (Uids{1000, 1001}));
  EXPECT_EQ(users_of({work}, {{10, of_user(0)}}).uids, Uids{0});
}

// Before Volta the driver lists no client of an MPS server. So the server may work for any user,
// even if other processes are listed.
TEST(UsersOfAGpu, AServerOfMpsWhoseClientsAreNotListedIsNoHelper) {
  const GpuProcess work{.pid = 10, .name = "train"};
  const GpuProcess mps{.pid = 12, .name = "nvidia-cuda-mps-server"};
  const std::map<std::int64_t, ProcessFacts> facts{{10, of_user(1000)}, {12, of_user(0)}};
  using Uids = std::set<std::uint32_t>;
  EXPECT_EQ(users_of({work, mps}, facts, Architecture::volta).uids, Uids{1000});
  EXPECT_EQ(users_of({work, mps}, facts, Architecture::pascal).uids, (Uids{0, 1000}));
  EXPECT_EQ(users_of({work, mps}, facts, Architecture::unknown).uids, (Uids{0, 1000}));
}

// A container of rootless Docker or Podman: its root is the user, its other users have subordinate
// ids.
TEST(UsersOfAGpu, SubordinateIdsCountAsTheirOwner) {
  EXPECT_EQ(users_of({{.pid = 10, .name = "train"}}, {{10, of_user(100'999)}}).uids,
            (std::set<std::uint32_t>{1000}));
}

// A process that a daemon starts for a command, as for a container or a Slurm task, is no
// descendant.
TEST(UsersOfAGpu, OthersAreOfAnotherUserOrBeganBeforeTheCommand) {
  const ProcessId command{.pid = 5, .uid = 1000, .started = 50};
  const auto others = [&](ProcessFacts facts, std::uint64_t started, bool computes = true) {
    facts.started = started;
    const ListedGpu gpu({{.pid = 10, .name = "train", .computes = computes}}, {{10, facts}});
    return gpu.tracker->others_work_on(gpu.uuid(), command);
  };
  EXPECT_FALSE(others(of_user(1000), 60));
  EXPECT_TRUE(others(of_user(1000), 40));
  EXPECT_TRUE(others(of_user(1000), 50));  // in the same tick of the clock: it may be either
  EXPECT_TRUE(others(of_user(1001), 60));
  EXPECT_TRUE(others(of_user(0), 60));
  EXPECT_FALSE(others(of_user(0), 40, false));  // a display
  EXPECT_FALSE(others(of_user(0, 1000), 60));   // sudo docker run, in the user's control group
  EXPECT_TRUE(others(of_user(0, 1000), 40));
  ProcessFacts below = of_user(1000);
  below.ancestors = {5};
  EXPECT_FALSE(others(below, 40));
  const ListedGpu gpu({{.pid = 10, .name = "train"}}, {{10, of_user(1000)}});
  EXPECT_TRUE(gpu.tracker->others_work_on(gpu.uuid(), {5, 1000, 0}));  // its start is not known
  EXPECT_FALSE(gpu.tracker->others_work_on("GPU-other", command));
}

TEST(UsersOfAGpu, RootInAUsersControlGroupWorksForThatUser) {
  EXPECT_EQ(users_of({{.pid = 10, .name = "train"}}, {{10, of_user(0, 1000)}}).uids,
            (std::set<std::uint32_t>{1000}));
}

// The handle shows that the process has ended while the driver still lists its PID. Its facts are
// dropped, as the PID may be another process's by now.
TEST(UsersOfAGpu, EndWithTheirProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  FakeClock clock;
  LazySource source;
  source.listed = {{.pid = child, .name = "train"}};
  ProcessReaders readers;
  readers.facts = [](std::int64_t pid) {
    ProcessFacts out = of_user(1000);
    out.pid = pid;
    out.started = 1;
    return std::optional(out);
  };
  readers.start = [](std::int64_t) { return 1; };
  readers.ancestors = [](const ProcessFacts&) { return std::vector<Ancestor>(); };
  readers.asked = [](std::int64_t) { return ""; };
  WorkloadTracker tracker(clock, {.readers = readers, .where = BackgroundWorker::Where::at_once});
  const WorkloadTracker::Gpu gpus[] = {{&source, 1}};
  for (int i = 0; i < 3; ++i) {
    clock.advance(2s);
    tracker.begin_listing(gpus);
    (void)tracker.update(gpus);
  }
  const std::string& uuid = source.capability().id.uuid;
  const bool has_handles = ProcessHandle::open(::getpid()).is_known();
  EXPECT_EQ(tracker.users_of(uuid).uids, std::set<std::uint32_t>{1000});
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  (void)tracker.update(gpus);  // no new list
  if (has_handles) {
    EXPECT_EQ(tracker.users_of(uuid).uids, std::set<std::uint32_t>{});
  }
}

}  // namespace
}  // namespace derate
