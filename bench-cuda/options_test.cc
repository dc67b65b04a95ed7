#include "options.h"

#include <gtest/gtest.h>

#include <string>

#include "failure.h"

namespace derate::bench_cuda {
namespace {

const std::vector<Workload>& two_workloads() {
  static const std::vector<Workload> table = {
      {.name = "even",
       .work_unit = "GB",
       .sizes = {"numbers", 64, 32, 320, SizeRule::multiple_of_lowest}},
      {.name = "power", .work_unit = "GB", .sizes = {"keys", 64, 16, 4096, SizeRule::power_of_two}},
  };
  return table;
}

CommandLine parse(const std::vector<std::string_view>& arguments) {
  return parse_command_line(arguments, two_workloads());
}

std::string refusal(const std::vector<std::string_view>& arguments) {
  try {
    parse(arguments);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.exit_code, exit_code::kUsage);
    return failure.what();
  }
  return "";
}

TEST(Options, HaveDefaults) {
  const CommandLine line = parse({"even"});
  EXPECT_EQ(line.command, Command::run);
  EXPECT_STREQ(line.workload->name, "even");
  EXPECT_EQ(line.options.seconds, 30);
  EXPECT_EQ(line.options.work, std::nullopt);
  EXPECT_EQ(line.options.size, 64);
  EXPECT_EQ(line.options.device, 0);
  EXPECT_EQ(line.options.duty, 0.5);
  EXPECT_EQ(line.options.data, std::vector<double>{1});
  EXPECT_EQ(line.options.heat, 0);
}

TEST(Options, AreRead) {
  const Options options = parse({"power", "--work", "1.5e3", "--size", "1024", "--device", "3",
                                 "--seed", "9", "--period-seconds", "2", "--duty", "1"})
                              .options;
  EXPECT_EQ(options.seconds, std::nullopt);  // work alone ends it
  EXPECT_EQ(options.work, 1500);
  EXPECT_EQ(options.size, 1024);
  EXPECT_EQ(options.device, 3);
  EXPECT_EQ(options.seed, 9);
  EXPECT_EQ(options.period_seconds, 2);
  EXPECT_EQ(options.duty, 1);
}

TEST(Options, SharesOfRandomDataAreAList) {
  const Options options =
      parse({"even", "--data", "0,0.25,1", "--data-seconds", "5", "--heat", "0.5"}).options;
  EXPECT_EQ(options.data, (std::vector<double>{0, 0.25, 1}));
  EXPECT_EQ(options.data_seconds, 5);
  EXPECT_EQ(options.heat, 0.5);
  EXPECT_EQ(parse({"even", "--data", "0.5"}).options.data, std::vector<double>{0.5});
  EXPECT_EQ(refusal({"even", "--data", "0,,1"}), "--data '': allowed is a number from 0 to 1");
  EXPECT_EQ(refusal({"even", "--data", "0,1,"}), "--data '': allowed is a number from 0 to 1");
  EXPECT_EQ(refusal({"even", "--data", "0,2"}), "--data '2': allowed is a number from 0 to 1");
}

TEST(Options, BothEndsMayBeGiven) {
  const Options options = parse({"even", "--seconds", "5", "--work", "7"}).options;
  EXPECT_EQ(options.seconds, 5);
  EXPECT_EQ(options.work, 7);
}

TEST(Options, OtherCommands) {
  EXPECT_EQ(parse({"list"}).command, Command::list);
  EXPECT_EQ(parse({"list", "--json"}).command, Command::list_json);
  EXPECT_EQ(parse({"even", "--help"}).command, Command::help);
  EXPECT_EQ(parse({"-h"}).command, Command::help);
}

TEST(Options, RefusalsNameValuePlaceAndWhatIsAllowed) {
  EXPECT_EQ(refusal({}), "workload '': allowed is list, even, power");
  EXPECT_EQ(refusal({"odd"}), "workload 'odd': allowed is list, even, power");
  EXPECT_EQ(refusal({"even", "--duty", "1.5"}), "--duty '1.5': allowed is a number from 0 to 1");
  EXPECT_EQ(refusal({"even", "--duty", "nan"}), "--duty 'nan': allowed is a number from 0 to 1");
  EXPECT_EQ(refusal({"even", "--seconds", "3s"}),
            "--seconds '3s': allowed is a number from 0.1 to 1e+07");
  EXPECT_EQ(refusal({"even", "--device", "1.5"}),
            "--device '1.5': allowed is a whole number from 0 to 1023");
  EXPECT_EQ(refusal({"even", "--seed"}), "--seed '': allowed is a value after it");
  EXPECT_EQ(refusal({"even", "--speed", "1"}),
            "option '--speed': allowed is --seconds, --work, --size, --device, --seed, "
            "--period-seconds, --duty, --data, --data-seconds, --heat, --heat-data");
  EXPECT_EQ(refusal({"list", "--yaml"}), "option of list '--yaml': allowed is --json, once");
}

TEST(Options, SizesFollowTheWorkload) {
  EXPECT_EQ(refusal({"even", "--size", "96"}), "");
  EXPECT_EQ(refusal({"even", "--size", "40"}),
            "--size '40': allowed is a multiple of 32 from 32 to 320 (numbers)");
  EXPECT_EQ(refusal({"even", "--size", "352"}),
            "--size '352': allowed is a multiple of 32 from 32 to 320 (numbers)");
  EXPECT_EQ(refusal({"power", "--size", "4096"}), "");
  EXPECT_EQ(refusal({"power", "--size", "48"}),
            "--size '48': allowed is a power of two from 16 to 4096 (keys)");
}

TEST(Options, HelpNamesEveryOption) {
  const std::string help = help_text();
  for (const char* name :
       {"--seconds", "--work", "--size", "--device", "--seed", "--period-seconds", "--duty",
        "--data", "--data-seconds", "--heat", "--heat-data", "list", "examples"})
    EXPECT_NE(help.find(name), std::string::npos) << name;
}

}  // namespace
}  // namespace derate::bench_cuda
