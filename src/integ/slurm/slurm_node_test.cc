#include "integ/slurm/slurm_node.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

// Lines of Slurm 22.05.8.
std::string config_text(const std::string& frequency, const std::string& tasks,
                        const std::string& devices) {
  return "Configuration data as of 2026-11-29T14:02:11\n"
         "GpuFreqDef              = " +
         frequency +
         "\n"
         "SLURM_VERSION           = 22.05.8\n"
         "TaskPlugin              = " +
         tasks +
         "\n"
         "TaskPluginParam         = (null type)\n\n"
         "Cgroup Support Configuration:\n"
         "ConstrainDevices        = " +
         devices + "\n";
}

TEST(SlurmConfig, SaysWhetherDevicesAreConstrained) {
  EXPECT_TRUE(
      parse_slurm_config(config_text("high,memory=high", "task/cgroup", "yes"))->constrained);
  EXPECT_TRUE(
      parse_slurm_config(config_text("high,memory=high", "task/affinity,task/cgroup", "yes"))
          ->constrained);
  EXPECT_FALSE(
      parse_slurm_config(config_text("high,memory=high", "task/none", "yes"))->constrained);
  EXPECT_FALSE(
      parse_slurm_config(config_text("high,memory=high", "task/cgroup", "no"))->constrained);
}

TEST(SlurmConfig, SaysWhetherSlurmSetsClocksByItself) {
  const auto frequency = [](const char* text) {
    return parse_slurm_config(config_text(text, "task/cgroup", "yes"))->default_frequency;
  };
  EXPECT_EQ(frequency("high,memory=high"), "");
  EXPECT_EQ(frequency("(null)"), "");
  EXPECT_EQ(frequency("low"), "low");
}

TEST(SlurmConfig, AnotherTextIsNone) {
  EXPECT_EQ(parse_slurm_config("slurm_load_ctl_conf error: Unable to contact slurm controller")
                .error()
                .code,
            Errc::bad_data);
}

// A node whose commands are counted.
struct NodeBench {
  NodeBench() {
    EXPECT_TRUE(write_file_atomically(folder.file("slurm.conf"), "", Durable::no).ok());
    EXPECT_TRUE(write_file_atomically(folder.file("gres.conf"), "", Durable::no).ok());
    constrain("ConstrainDevices=yes\n");
  }
  void constrain(const char* text) const {
    EXPECT_TRUE(write_file_atomically(folder.file("cgroup.conf"), text, Durable::no).ok());
  }
  Result<SlurmNode> node() {
    return slurm_node({.config = folder.file("slurm.conf"),
                       .node = "n1",
                       .cache = folder.file("cache"),
                       .run = [this](const std::vector<std::string>& command) {
                         ++runs;
                         if (command[0] == "slurmd") return Result<std::string>(gres);
                         return Result<std::string>(command[2] == "node" ? counts : config);
                       }});
  }

  const Folder folder;
  std::string gres = "slurmd: Gres Name=gpu Count=1 File=/dev/null (null)\n";
  std::string config = config_text("high,memory=high", "task/cgroup", "yes");
  std::string counts = "NodeName=n1 Arch=x86_64\n   Gres=gpu:1\n";
  int runs = 0;
};

TEST(SlurmNode, IsReadOnceUntilAFileChanges) {
  NodeBench bench;
  const auto first = bench.node();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->minors, std::vector<std::optional<int>>{std::nullopt});  // no driver's file
  EXPECT_TRUE(first->constrained);
  EXPECT_EQ(bench.runs, 3);
  EXPECT_EQ(*bench.node(), *first);
  EXPECT_EQ(bench.runs, 3);
  EXPECT_TRUE(write_file_atomically(bench.folder.file("gres.conf"), "# another", Durable::no).ok());
  EXPECT_TRUE(bench.node().ok());
  EXPECT_EQ(bench.runs, 6);
}

TEST(SlurmNode, ACacheThatIsDamagedIsNone) {
  NodeBench bench;
  ASSERT_TRUE(bench.node().ok());
  for (const char* const text : {"", "{", "[]", "{\"of\": 7}", "{\"of\": \"x\", \"minors\": 3}"}) {
    EXPECT_TRUE(write_file_atomically(bench.folder.file("cache"), text, Durable::no).ok());
    const int before = bench.runs;
    EXPECT_TRUE(bench.node().ok()) << text;
    EXPECT_EQ(bench.runs, before + 3) << text;
  }
}

TEST(SlurmNode, FailuresOfCommandsAreNotKept) {
  NodeBench bench;
  bench.gres = "slurmd: Gres Name=gpu Count=2 (null)\n";
  EXPECT_EQ(bench.node().error().code, Errc::bad_data);
  bench.gres = "";
  EXPECT_EQ(bench.node().error().code, Errc::not_supported);  // slurmctld has one
  bench.counts = "NodeName=n1\n   Gres=(null)\n";
  EXPECT_TRUE(bench.node()->minors.empty());
}

TEST(SlurmNode, DevicesAreConstrainedByItsOwnCgroupConf) {
  NodeBench bench;
  for (const auto& [text, constrained] :
       {std::pair("ConstrainDevices=yes", true), std::pair(" constraindevices = YES # all", true),
        std::pair("#ConstrainDevices=yes", false), std::pair("ConstrainDevices=no", false),
        std::pair("", false)}) {
    bench.constrain(text);
    EXPECT_EQ(bench.node()->constrained, constrained) << text;
  }
}

TEST(SlurmNode, GpusOfANodeAreCounted) {
  const auto count = [](const std::string& list) {
    return gpu_count("NodeName=n1 CoresPerSocket=1\n   Gres=" + list + "\n   NodeAddr=x\n");
  };
  EXPECT_EQ(count("(null)"), 0u);
  EXPECT_EQ(count("gpu:2"), 2u);
  EXPECT_EQ(count("gpu:a100:4(S:0,1),gpu:h100:2(S:0-1),shard:a:16"), 6u);
  EXPECT_EQ(count("shard:8,gpu:1"), 1u);
  EXPECT_EQ(gpu_count(""), 0u);
}

}  // namespace
}  // namespace derate
