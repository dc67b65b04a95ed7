#include "integ/slurm/gres_list.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

using Files = std::vector<std::string>;

// Printed by Slurm 22.05.8.
TEST(GresList, IsInTheOrderOfSlurmd) {
  EXPECT_EQ(*parse_gres_list("slurmd: Gres Name=gpu Type=sim Count=1 Index=3 ID=7696487 "
                             "File=/dev/nvidia3 (null)\n"
                             "slurmd: Gres Name=gpu Type=sim Count=1 Index=2 ID=7696487 "
                             "File=/dev/nvidia2 (null)\n"),
            (Files{"/dev/nvidia3", "/dev/nvidia2"}));
  EXPECT_EQ(*parse_gres_list("slurmd: Gres Name=gpu Type=sim Count=2 Index=0 ID=7696487 "
                             "File=/dev/nvidia[0-1] (null)\n"),
            (Files{"/dev/nvidia0", "/dev/nvidia1"}));
}

TEST(GresList, LeavesOutWhatIsNoGpu) {
  EXPECT_EQ(*parse_gres_list(
                "slurmd: WARNING: A line in gres.conf for GRES gpu:sim has 2 more configured than "
                "expected in slurm.conf. Ignoring extra GRES.\n"
                "slurmd: Gres Name=shard Type=a Count=2 Index=0 ID=1918986455 File=/dev/nvidia0 "
                "(null)\n"
                "slurmd: Gres Name=gpu Type=a Count=1 Index=0 ID=7696487 File=/dev/nvidia0 "
                "Links=0,-1\n"
                "slurmd: Gres Name=gpu Type=b Count=1 Index=2 ID=7696487 File=/dev/nvidia2 Cores=0 "
                "CoreCnt=2 (null)\n"),
            (Files{"/dev/nvidia0", "/dev/nvidia2"}));
  EXPECT_TRUE(parse_gres_list("")->empty());
}

TEST(GresList, ListsWithBrackets) {
  EXPECT_EQ(*parse_gres_list("Gres Name=gpu Count=4 File=/dev/nvidia[0,2-4] (null)"),
            (Files{"/dev/nvidia0", "/dev/nvidia2", "/dev/nvidia3", "/dev/nvidia4"}));
}

TEST(GresList, RefusesGpusWithoutAFileEach) {
  for (const char* const line :
       {"Gres Name=gpu Type=a Count=2 Index=0 ID=7 (null)",
        "Gres Name=gpu Type=a Count=2 File=/dev/nvidia0 (null)",
        "Gres Name=gpu Type=1g.5gb Count=1 MultipleFiles=/dev/nvidia0,/dev/nvidia-caps/nvidia-cap3",
        "Gres Name=gpu File=/dev/nvidia0", "Gres Name=gpu Count=1 File=nvidia0",
        "Gres Name=gpu Count=1 File=/dev/nvidia[0", "Gres Name=gpu Count=1 File=/dev/nvidia[]",
        "Gres Name=gpu Count=1 File=/dev/nvidia[1-0]", "Gres Name=gpu Count=1 File=/dev/nvidia[a]",
        "Gres Name=gpu Count=9999999 File=/dev/nvidia[0-9999998]",
        "Gres Name=gpu Count=2 File=/dev/nvidia0,/dev/nvidia1"}) {
    const auto list = parse_gres_list(line);
    ASSERT_FALSE(list.ok()) << line;
    EXPECT_EQ(list.error().code, Errc::bad_data);
  }
}

TEST(GresList, OnlyTheDriversDeviceFilesHaveAMinor) {
  EXPECT_FALSE(nvidia_minor("/dev/null"));
  EXPECT_FALSE(nvidia_minor("/nowhere/nvidia0"));
  EXPECT_FALSE(nvidia_minor("/etc/passwd"));
}

}  // namespace
}  // namespace derate
