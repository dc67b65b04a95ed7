#include "compare_sides.h"

#include <gtest/gtest.h>

namespace derate::cli {
namespace {

using Words = std::vector<std::string>;

CompareOptions of(Words command) {
  CompareOptions out;
  out.command = std::move(command);
  return out;
}

TEST(CompareSides, AreTwoCommands) {
  const auto sides = compare_sides(of({"./a", "-x", "--vs", "python b.py"}), "derate", "");
  ASSERT_TRUE(sides.ok());
  EXPECT_EQ(sides->a, (Words{"./a", "-x"}));
  EXPECT_EQ(sides->b, (Words{"/bin/sh", "-c", "python b.py"}));
  EXPECT_EQ(sides->shown_b, Words{"python b.py"});
  EXPECT_FALSE(sides->governs);
}

TEST(CompareSides, AreOneCommandUnderEachOfTwoPolicies) {
  CompareOptions options = of({"./train", "--vsize"});
  options.policies = "none,assure delta=0.05";
  options.as_root = true;
  const auto sides = compare_sides(options, "/usr/bin/derate", "0,2");
  ASSERT_TRUE(sides.ok()) << sides.error().message;
  EXPECT_EQ(sides->a, (Words{"./train", "--vsize"}));
  EXPECT_EQ(sides->b, (Words{"/usr/bin/derate", "run", "--policy", "assure", "--set", "delta=0.05",
                             "-i", "0,2", "--as-root", "--", "./train", "--vsize"}));
  EXPECT_EQ(sides->shown_a, Words{"none"});
  EXPECT_EQ(sides->shown_b, (Words{"assure", "delta=0.05"}));
  EXPECT_TRUE(sides->governs);
}

TEST(CompareSides, AreOneCommandUnderEachOfTwoLimits) {
  CompareOptions options = of({"python train.py"});
  options.limits = "700,500";
  const auto sides = compare_sides(options, "derate", "");
  ASSERT_TRUE(sides.ok()) << sides.error().message;
  EXPECT_EQ(sides->b, (Words{"derate", "run", "--policy", "power-cap", "--set", "watts=500", "--",
                             "/bin/sh", "-c", "python train.py"}));
}

TEST(CompareSides, AreRefusedWithTheReason) {
  const auto error = [](const std::string& policies, const std::string& limits, Words command) {
    CompareOptions options = of(std::move(command));
    options.policies = policies;
    options.limits = limits;
    return compare_sides(options, "derate", "").error().message;
  };
  EXPECT_EQ(error("assure", "", {"./a"}),
            "--policies 'assure': allowed are two with a comma between them");
  EXPECT_EQ(error("", "1,2,3", {"./a"}),
            "--limits '1,2,3': allowed are two with a comma between them");
  EXPECT_NE(error("assur,none", "", {"./a"}).find("assur"), std::string::npos);
  EXPECT_NE(error("none,assure delta=7", "", {"./a"}).find("delta"), std::string::npos);
  EXPECT_NE(error("", "700,lots", {"./a"}).find("lots"), std::string::npos);
  EXPECT_NE(error("none,assure", "", {"./a", "--vs", "./b"}).find("no --vs"), std::string::npos);
  EXPECT_NE(error("", "", {"./a"}).find("--vs"), std::string::npos);
}

}  // namespace
}  // namespace derate::cli
