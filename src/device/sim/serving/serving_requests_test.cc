#include "device/sim/serving/serving_requests.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/test_folder.h"

namespace derate {
namespace {

// Each request has a size of its own, by which it is known again.
std::vector<ServingRequest> trace_of(int count) {
  std::vector<ServingRequest> out;
  for (int i = 0; i < count; ++i) out.push_back({i * 0.5, i + 1, 10});
  return out;
}

bool ascend(const std::vector<ServingRequest>& requests) {
  return std::is_sorted(requests.begin(), requests.end(),
                        [](const auto& a, const auto& b) { return a.arrival_s < b.arrival_s; });
}

// --- properties ----------------------------------------------------------------------------------

RC_GTEST_PROP(ServingRequestsProperty, ThinningKeepsTheOrder, (std::uint64_t seed)) {
  const auto trace = trace_of(*rc::gen::inRange(0, 60));
  const Thinning how{.length_s = 30,
                     .times = *rc::gen::inRange(1, 4),
                     .keep = *rc::gen::inRange(0, 11) / 10.0,
                     .seed = seed};
  const auto out = thinned(trace, how);
  RC_ASSERT(ascend(out));
  RC_ASSERT(how.keep < 1 || out.size() == trace.size() * how.times);
  RC_ASSERT(how.keep > 0 || out.empty());
  for (const ServingRequest& each : out) {
    const auto time = static_cast<int>(each.arrival_s / how.length_s);
    const ServingRequest& source = trace[each.prompt_tokens - 1];
    RC_ASSERT(std::abs(each.arrival_s - time * how.length_s - source.arrival_s) < 1e-9);
    RC_ASSERT(each.generated_tokens == source.generated_tokens);
  }
}

RC_GTEST_PROP(ServingRequestsProperty, DrawnOnesComeInOrderAndInTime, (std::uint64_t seed)) {
  const auto trace = trace_of(20);
  const DrawnArrivals how{.rate = *rc::gen::inRange(1, 50) / 10.0,
                          .until_s = 100,
                          .burst_times = *rc::gen::inRange(0, 40) / 10.0,
                          .burst_at_s = 30,
                          .burst_s = 20,
                          .seed = seed};
  const auto out = drawn_requests(trace, how);
  RC_ASSERT(ascend(out));
  for (const ServingRequest& each : out) {
    RC_ASSERT(each.arrival_s >= 0 && each.arrival_s < 100);
    RC_ASSERT(each.prompt_tokens >= 1 && each.prompt_tokens <= 20);
    RC_ASSERT(how.burst_times > 0 || each.arrival_s < 30 || each.arrival_s >= 50);
  }
}

// --- shares and rates ----------------------------------------------------------------------------

// Of 6,000 draws the standard error of a share p is sqrt(p (1 - p) / 6000): three of them.
TEST(ServingRequests, ThinningKeepsItsShare) {
  const auto trace = trace_of(2000);
  for (const double keep : {0.1, 0.5, 0.9}) {
    const auto out = thinned(trace, {.length_s = 1000, .times = 3, .keep = keep, .seed = 7});
    const double share = static_cast<double>(out.size()) / 6000;
    EXPECT_NEAR(share, keep, 3 * std::sqrt(keep * (1 - keep) / 6000));
  }
  // Each time is drawn anew.
  const auto out = thinned(trace, {.length_s = 1000, .times = 2, .keep = 0.5, .seed = 7});
  const auto second =
      std::find_if(out.begin(), out.end(), [](const auto& each) { return each.arrival_s >= 1000; });
  EXPECT_FALSE(std::equal(out.begin(), second, second, out.end(), [](const auto& a, const auto& b) {
    return a.prompt_tokens == b.prompt_tokens;
  }));
}

// Poisson counts: of n expected ones the standard error is sqrt(n).
TEST(ServingRequests, DrawnOnesHaveTheirRateAndTheBurstsToo) {
  const auto trace = trace_of(50);
  const DrawnArrivals how{
      .rate = 2, .until_s = 3000, .burst_times = 4, .burst_at_s = 1000, .burst_s = 500, .seed = 3};
  double within = 0, outside = 0, prompts = 0;
  for (const ServingRequest& each : drawn_requests(trace, how)) {
    (each.arrival_s >= 1000 && each.arrival_s < 1500 ? within : outside) += 1;
    prompts += each.prompt_tokens;
  }
  EXPECT_NEAR(within, 4000, 3 * std::sqrt(4000));
  EXPECT_NEAR(outside, 5000, 3 * std::sqrt(5000));
  // Sizes 1 to 50 are equally likely: their standard deviation is 14.4.
  EXPECT_NEAR(prompts / (within + outside), 25.5, 3 * 14.4 / std::sqrt(9000));
  EXPECT_TRUE(drawn_requests({}, how).empty());
}

// --- errors --------------------------------------------------------------------------------------

TEST(ServingRequests, AreReadFromAFile) {
  const std::string text =
      "generated_tokens,arrival_s,prompt_tokens\n# a comment\n5,0,10\n6,1.5,20\n";
  const auto requests = parse_requests(text, "trace.csv");
  ASSERT_TRUE(requests.ok());
  ASSERT_EQ(requests->size(), 2U);
  EXPECT_EQ((*requests)[1].arrival_s, 1.5);
  EXPECT_EQ((*requests)[1].prompt_tokens, 20);
  EXPECT_EQ((*requests)[1].generated_tokens, 6);
  const auto none = load_requests("/nonexistent/trace.csv");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Errc::not_found);
}

TEST(ServingRequests, ErrorsNameTheirLine) {
  const std::string header = "arrival_s,prompt_tokens,generated_tokens\n";
  const std::pair<std::string, const char*> bad[] = {
      {header + "0,1,1\nsoon,1,1\n", "trace.csv:3: arrival_s 'soon'"},
      {header + "2,1,1\n1,1,1\n", "trace.csv:3: arrival_s '1'"},
      {header + "-1,1,1\n", "trace.csv:2: arrival_s '-1'"},
      {header + "0,0,1\n", "trace.csv:2: prompt_tokens '0'"},
      {header + "0,1,nan\n", "trace.csv:2: generated_tokens 'nan'"},
      {header + "0,1,1e300\n", "trace.csv:2: generated_tokens '1e300'"},
      {"arrival_s,prompt_tokens\n0,1\n", "trace.csv:1"},
  };
  for (const auto& [text, message] : bad) {
    const auto requests = parse_requests(text, "trace.csv");
    ASSERT_FALSE(requests.ok()) << text;
    EXPECT_EQ(requests.error().code, Errc::bad_data);
    EXPECT_EQ(requests.error().message.rfind(message, 0), 0U) << requests.error().message;
  }
}

}  // namespace
}  // namespace derate
