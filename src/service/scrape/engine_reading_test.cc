#include "service/scrape/engine_reading.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "api/requests.h"
#include "base/json.h"
#include "signal/serving/test_engine_page.h"

namespace derate {
namespace {

// Through the JSON of a report, as it travels.
RC_GTEST_PROP(EngineReadingProp, TheStateArrivesAsItWasRead, ()) {
  const auto engines = some_engines();
  const auto read = read_engine(VllmPage(engines, "m").text(), nullptr, "");
  RC_ASSERT(read.ok());
  const ServiceReport report{{reading_of("chat", *read)}};
  const auto back = request_of<ServiceReport>(parse_json(json_text(request_json(report))));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == report);
  const auto state = state_of(back->readings[0]);
  RC_ASSERT(state.ok());
  RC_ASSERT(*state == read->state);
}

TEST(EngineReading, WhatNoEngineCanShowIsRefused) {
  const auto refusal = [](const ServiceReading& reading) {
    const auto state = state_of(reading);
    return state.ok() ? "" : state.error().message;
  };
  EXPECT_EQ(refusal({.running = 3}), "");
  EXPECT_NE(refusal({.running = -1}), "");
  EXPECT_NE(refusal({.generated_tokens = 1e300}), "");
  const auto counts = [&](std::vector<double> edges, std::vector<double> counted, double sum) {
    return refusal(
        {.between_tokens = LatencyCountsView{std::move(edges), std::move(counted), sum}});
  };
  EXPECT_EQ(counts({0.1, 0.2}, {1, 2, 3}, 1), "");
  EXPECT_NE(counts({0.1, 0.2}, {1, 2}, 1), "");
  EXPECT_NE(counts({0.1, 0.2}, {3, 2, 3}, 1), "");
  EXPECT_NE(counts({0.2, 0.1}, {1, 2, 3}, 1), "");
  EXPECT_NE(counts({0.1, 0.1}, {1, 2, 3}, 1), "");
  EXPECT_NE(counts({0.1, 0.2}, {1, 2, 3}, -1), "");
  EXPECT_NE(counts({0.1, std::numeric_limits<double>::infinity()}, {1, 2, 3}, 1), "");
  EXPECT_NE(counts(std::vector<double>(kMostEdges + 1, 1), std::vector<double>(kMostEdges + 2), 1),
            "");
}

}  // namespace
}  // namespace derate
