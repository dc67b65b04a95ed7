#include "service/records/bill_query.h"

#include <gtest/gtest.h>

#include "api/requests.h"
#include "base/json.h"
#include "base/test_folder.h"
#include "base/when.h"

namespace derate {
namespace {

using std::chrono::minutes;

class BillQuery : public testing::Test {
 protected:
  BillQuery() {
    UsageStore store(file());
    EXPECT_TRUE(store.begin(now_ - minutes(10), {kFirst, kSecond}).ok());
    UsageRows rows;
    UsageSavings saved{{"curves/1", {.energy_mj = 600, .at_highest_mj = 800, .sd_mj = 30}}};
    const WallTime bucket = usage_bucket(now_ - minutes(5));
    rows.tenants.push_back({bucket,
                            kFirst,
                            "pid:1",
                            {.user = "ann"},
                            {.base_mj = 1001,
                             .context_mj = 20,
                             .dynamic_mj = 3,
                             .sigma_mj = 7,
                             .unsure_mj = 2,
                             .prior_mj = 1,
                             .time_ms = 60'001,
                             .savings = saved}});
    rows.boards.push_back({bucket,
                           kFirst,
                           {.board_mj = 1500,
                            .unallocated_mj = 476,
                            .time_ms = 60'000,
                            .unallocated_savings = saved}});
    rows.boards.push_back(
        {bucket,
         kSecond,
         {.board_mj = 900, .unallocated_mj = 900, .by_power_mj = 5, .time_ms = 60'000}});
    EXPECT_TRUE(store.add(rows, now_ - minutes(4), minutes(6)).ok());
    EXPECT_TRUE(store.end().ok());
  }
  std::string file() const { return folder_.path() + "/usage.db"; }
  Result<Bill> bill(const BillRead& request) {
    const auto answer = TRY(answer_bill(file(), request, now_, kKnown));
    EXPECT_EQ(answer["by"], request.by);
    return bill_of(TRY(answer_of<BillAnswer>(answer)));
  }

  static constexpr const char* kFirst = "GPU-51a00000-0000-0000-0000-000000000000";
  static constexpr const char* kSecond = "GPU-51a00000-0000-0000-0000-000000000001";
  const std::vector<GpuId> kKnown = {{0, kFirst, "", ""}, {1, kSecond, "", ""}};
  const Folder folder_{0700};
  const WallTime now_ = *parse_when("2026-11-20T12:00Z", WallTime{});
};

// The bill that crosses the socket as joules is that of the file, to the millijoule.
TEST_F(BillQuery, IsTheFilesBillExactly) {
  for (const BillBy by : {BillBy::user, BillBy::process, BillBy::gpu}) {
    const auto there = read_usage(file(), now_ - minutes(60), now_);
    ASSERT_TRUE(there.ok());
    const auto asked = bill({.by = to_string(by), .from = "-1h"});
    ASSERT_TRUE(asked.ok()) << asked.error().message;
    EXPECT_EQ(*asked, make_bill(*there, by)) << to_string(by);
  }
}

// Of every GPU, also of one that was idle, and of all that it used.
TEST_F(BillQuery, ByGpuHasALineForEachBoard) {
  const auto by_gpu = bill({.by = "gpu", .from = "-1h"});
  ASSERT_TRUE(by_gpu.ok());
  ASSERT_EQ(by_gpu->lines.size(), 2u);
  EXPECT_EQ(by_gpu->lines[0].name, kFirst);
  EXPECT_EQ(by_gpu->lines[0].sums.total_mj(), 1500);
  EXPECT_EQ(by_gpu->lines[1].sums.total_mj(), 900);
  EXPECT_EQ(by_gpu->boards.unallocated_mj, 0);
  const auto answer = answer_bill(file(), {.by = "gpu", .from = "-1h"}, now_, kKnown);
  EXPECT_EQ((*answer)["lines"][1]["index"], 1);
}

TEST_F(BillQuery, GpusAreNamedAsEverywhere) {
  for (const char* name : {"1", "1-1", kSecond, "GPU-51a00000-0000-0000-0000-000000000001"})
    EXPECT_EQ(bill({.from = "-1h", .gpus = name})->boards.board_mj, 900) << name;
  EXPECT_EQ(bill({.from = "-1h", .gpus = "0-1"})->boards.board_mj, 2400);
  EXPECT_EQ(bill({.from = "-1h", .gpus = "7"}).error().code, Errc::not_found);
  EXPECT_EQ(answer_bill(file() + "x", {.gpus = "7"}, now_, kKnown)
                .error()
                .message.find("GPU '7' is not here"),
            0u);
  EXPECT_EQ(bill({.by = "team"}).error().code, Errc::invalid_argument);
  EXPECT_EQ(bill({.from = "now", .to = "-1h"}).error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace derate
