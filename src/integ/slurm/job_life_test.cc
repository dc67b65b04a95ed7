#include "integ/slurm/job_life.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

struct CgroupBench {
  // A file with its folders.
  void write(const std::string& path, const std::string& text) const {
    const std::string whole = folder.path() + "/" + path;
    std::filesystem::create_directories(std::filesystem::path(whole).parent_path());
    EXPECT_TRUE(write_file_atomically(whole, text, Durable::no).ok()) << whole;
  }
  void make(const std::string& path) const {
    std::filesystem::create_directories(folder.path() + "/" + path);
  }
  SlurmJobLook look(const std::string& id, const std::string& node = "n2") const {
    return look_at_slurm_job({id, 1000, node}, folder.path() + "/cgroup", folder.path() + "/proc");
  }

  const Folder folder;
};

TEST(JobLife, IsThatOfTheControlGroupsOfEitherVersion) {
  CgroupBench bench;
  bench.make("cgroup");
  EXPECT_EQ(bench.look("7").lives, false);
  for (const char* const path :
       {"devices/slurm/uid_1000/job_7", "freezer/slurm_n2/uid_1000/job_7",
        "system.slice/slurmstepd.scope/job_7", "system.slice/n2_slurmstepd.scope/job_7"}) {
    bench.make(std::string("cgroup/") + path);
    EXPECT_EQ(bench.look("7").lives, true) << path;
    EXPECT_FALSE(bench.look("7").suspended);
    EXPECT_EQ(bench.look("70").lives, false) << path;
    EXPECT_EQ(bench.look("8").lives, false) << path;
    std::filesystem::remove_all(bench.folder.path() + "/cgroup/" + path);
  }
  EXPECT_EQ(bench.look("7").lives, false);
}

TEST(JobLife, IsNotKnownWithoutControlGroupsOrForNoName) {
  CgroupBench bench;
  EXPECT_FALSE(bench.look("7").lives);
  bench.make("cgroup");
  EXPECT_FALSE(bench.look("../..").lives);
  EXPECT_FALSE(bench.look("7", "../../etc").lives);
  EXPECT_FALSE(bench.look("").lives);
}

TEST(JobLife, AJobIsSuspendedWhereAllOfItsStepsAreFrozen) {
  CgroupBench bench;
  const std::string v1 = "cgroup/freezer/slurm_n2/uid_1000/job_7/";
  bench.write(v1 + "step_batch/freezer.state", "FROZEN\n");
  EXPECT_TRUE(bench.look("7").suspended);
  bench.write(v1 + "step_0/freezer.state", "THAWED\n");
  EXPECT_FALSE(bench.look("7").suspended);
  bench.write(v1 + "step_0/freezer.state", "FREEZING\n");
  EXPECT_FALSE(bench.look("7").suspended);
  const std::string v2 = "cgroup/system.slice/n2_slurmstepd.scope/job_8/";
  bench.write(v2 + "step_0/user/cgroup.events", "populated 1\nfrozen 1\n");
  EXPECT_TRUE(bench.look("8").suspended);
  bench.write(v2 + "step_0/user/cgroup.events", "populated 1\nfrozen 0\n");
  EXPECT_FALSE(bench.look("8").suspended);
}

TEST(JobLife, ASlurmdOfTheNodeIsFound) {
  CgroupBench bench;
  bench.make("cgroup");
  const auto process = [&](const std::string& name, const std::string& line) {
    bench.write("proc/41/stat",
                "41 (" + name + ") S 1 41 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 7 0\n");
    bench.write("proc/41/cmdline", line);
    return bench.look("7").slurmd_runs;
  };
  EXPECT_FALSE(bench.look("7").slurmd_runs);
  EXPECT_TRUE(process("slurmd", std::string("slurmd\0-D\0", 10)));
  EXPECT_TRUE(process("slurmd", std::string("slurmd\0-N\0n2\0", 13)));
  EXPECT_FALSE(process("slurmd", std::string("slurmd\0-N\0n1\0", 13)));
  EXPECT_FALSE(process("slurmstepd", std::string("slurmd\0", 7)));
  EXPECT_FALSE(process("slurmd", ""));  // killed, and nobody has waited for it
  EXPECT_FALSE(process("slurmd", std::string("slurmd\0-G\0", 10)));
  EXPECT_FALSE(process("slurmd", std::string("slurmd\0-N\0n2\0-C\0", 16)));
  std::filesystem::remove(bench.folder.file("proc/41/cmdline"));  // it ended between two reads
  EXPECT_FALSE(bench.look("7").slurmd_runs);
}

TEST(JobLife, AStepThatSetsClocksIsKnownByItsTasks) {
  CgroupBench bench;
  const std::string job = "cgroup/system.slice/n2_slurmstepd.scope/job_7/";
  bench.write(job + "step_0/user/task_0/cgroup.procs", "41\n42\n");
  EXPECT_FALSE(bench.look("7").sets_clocks);  // no such processes
  bench.write("proc/41/environ", std::string("A=SLURMD_TRES_FREQ=gpu:low\0B=1\0", 31));
  EXPECT_FALSE(bench.look("7").sets_clocks);
  bench.write("proc/42/environ", std::string("A=1\0SLURMD_TRES_FREQ=gpu:low\0", 29));
  EXPECT_TRUE(bench.look("7").sets_clocks);
  bench.write("proc/42/environ", std::string("A=1\0SLURMD_TRES_FREQ=cpu:low\0", 29));
  EXPECT_FALSE(bench.look("7").sets_clocks);
  bench.write("proc/42/environ", std::string("A=1\0SLURM_GPU_FREQ=low\0", 23));
  EXPECT_TRUE(bench.look("7").sets_clocks);
}

}  // namespace
}  // namespace derate
