#include "signal/serving/engine_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace derate {
namespace {

TEST(EngineTable, NamesAreWholeAndOfOneEngineEach) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const EngineNames& engine : engine_table()) {
    EXPECT_FALSE(engine.engine.empty());
    EXPECT_NE(engine.source.find('@'), std::string_view::npos) << engine.engine;
    for (const EngineRole& role : engine_roles()) {
      const MetricName& metric = engine.*role.name;
      EXPECT_TRUE(metric.older.empty() || !metric.name.empty()) << engine.engine;
      EXPECT_EQ(metric.label.empty(), metric.value.empty()) << engine.engine;
      for (const std::string_view name : {metric.name, metric.older}) {
        EXPECT_EQ(name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_:"), name.npos) << name;
        EXPECT_FALSE(name.ends_with("_bucket")) << name;
        EXPECT_TRUE(name.empty() || seen.emplace(name, metric.value).second) << name;
      }
    }
  }
}

TEST(EngineTable, RolesHaveOneFieldEach) {
  for (const EngineRole& role : engine_roles()) {
    EXPECT_NE(role.number == nullptr, role.histogram == nullptr) << role.text;
    EXPECT_EQ(role.kind == RoleKind::histogram, role.histogram != nullptr) << role.text;
  }
}

TEST(EngineTable, APromiseNeedsIntervalsBetweenTokens) {
  std::set<std::string_view> possible;
  for (const EngineNames& engine : engine_table())
    if (engine.promise_possible()) possible.insert(engine.engine);
  EXPECT_EQ(possible, (std::set<std::string_view>{"vLLM", "SGLang", "Dynamo (frontend)"}));
  EXPECT_FALSE(engine_names({.running = "mine_running"}).promise_possible());
  EXPECT_TRUE(engine_names({.between_tokens = "mine_seconds"}).promise_possible());
}

}  // namespace
}  // namespace derate
