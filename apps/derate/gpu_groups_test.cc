#include "gpu_groups.h"

#include <gtest/gtest.h>

namespace derate::cli {
namespace {

TEST(GpuGroups, IndicesInARowAreARange) {
  EXPECT_EQ(gpu_group_name({0}), "GPU 0");
  EXPECT_EQ(gpu_group_name({1, 0}), "GPU 0,1");
  EXPECT_EQ(gpu_group_name({7, 0, 1, 2, 4}), "GPU 0-2,4,7");
}

TEST(GpuGroups, TheSameSentenceIsSaidOnce) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(grouped_sentences({{0, "GPU 0 is observed"},
                               {1, "GPU 1 is governed by assure"},
                               {2, "GPU 2 is observed"},
                               {3, "GPU 3 is observed"}}),
            (Lines{"GPU 0,2,3 is observed", "GPU 1 is governed by assure"}));
  // A sentence of another form is of its GPU alone; GPU 1 is no part of GPU 10.
  EXPECT_EQ(grouped_sentences({{0, "done"}, {1, "done"}, {1, "GPU 10 is observed"}}),
            (Lines{"done", "done", "GPU 10 is observed"}));
}

}  // namespace
}  // namespace derate::cli
