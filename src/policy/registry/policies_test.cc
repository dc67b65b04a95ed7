#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/text.h"
#include "policy/registry/registry.h"
#include "policy/registry/test_policy.h"

namespace derate {
namespace {

using Kind = Decision::Kind;

// --- The registry --------------------------------------------------------------------------------

TEST(Registry, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const PolicyInfo& info : policies()) {
    EXPECT_TRUE(names.insert(info.name).second) << info.name;
    EXPECT_EQ(*find_policy(info.name), &info);
    EXPECT_STRNE(info.summary, "");
    EXPECT_STRNE(info.description, "");
    EXPECT_EQ(std::string(info.summary).find('\n'), std::string::npos) << info.name;
  }
  for (const char* name : {"geepafs", "max-freq", "efficient-fix", "nv-boost", "utiliz-scale",
                           "sweet-spot", "power-cap", "gpu-activity", "energy-ucb"})
    EXPECT_TRUE(names.contains(name)) << name;
}

TEST(Registry, EveryPolicyRunsWithItsDefaultsOnEveryChip) {
  for (const PolicyInfo& info : policies())
    for (const TestChip& chip : kTestChips) {
      const auto policy = make_test_policy(info.name, chip);
      EXPECT_TRUE(policy.ok()) << info.name << " on " << chip.name << ": "
                               << (policy.ok() ? "" : policy.error().message);
    }
}

TEST(Registry, DefaultsParseAndParametersAreNamedOnce) {
  for (const PolicyInfo& info : policies()) {
    std::set<std::string> names;
    for (const ParamSpec& spec : info.params) {
      SCOPED_TRACE(std::string(info.name) + " " + spec.name);
      EXPECT_TRUE(names.insert(spec.name).second);
      EXPECT_STRNE(spec.summary, "");
      if (*spec.fallback == '\0') continue;
      const auto value = parse_param(spec, spec.fallback);
      ASSERT_TRUE(value.ok());
      EXPECT_EQ(default_params(info.params).list(spec.name), *value);
    }
  }
}

TEST(Registry, AnUnknownNameIsAnsweredWithTheKnownOnes) {
  EXPECT_EQ(find_policy("assured").error().message, "no policy 'assured'; did you mean 'assure'?");
  const auto policy = find_policy("turbo");
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.error().code, Errc::not_found);
  for (const PolicyInfo& info : policies()) {
    EXPECT_NE(policy.error().message.find(info.name), std::string::npos);
    for (const char* wrong : {"nonsense=1", "=1", ""}) {
      const auto params = policy_params(info, std::vector<std::string>{wrong});
      ASSERT_FALSE(params.ok());
      EXPECT_EQ(params.error().code, Errc::invalid_argument);
    }
    const auto error = policy_params(info, std::vector<std::string>{"nonsense=1"}).error();
    EXPECT_NE(error.message.find("'nonsense'"), std::string::npos);
    for (const ParamSpec& spec : info.params)
      EXPECT_NE(error.message.find(spec.name), std::string::npos) << error.message;
  }
}

// Lists and screens show the promise of each.
TEST(Registry, APromiseOfDeltaIsMadeByPoliciesThatHaveADelta) {
  for (const PolicyInfo& info : policies()) {
    const ParamValues params = default_params(info.params);
    if (info.promise == PolicyInfo::Promise::delta) {
      EXPECT_TRUE(params.number("delta")) << info.name;
    }
    EXPECT_EQ(can_exceed_promise(info),
              info.promise == PolicyInfo::Promise::none ||
                  (info.promise == PolicyInfo::Promise::delta && info.as_published))
        << info.name;
  }
}

TEST(Registry, AssignmentsOverrideDefaultsAndTheLastOneWins) {
  const PolicyInfo& info = **find_policy("geepafs");
  const auto params = *policy_params(info, std::vector<std::string>{"delta=0.2", "delta=0.05"});
  EXPECT_EQ(params.number("delta"), 0.05);
  EXPECT_EQ(params.number("interval"), 15);
  EXPECT_EQ(params.number("min_clock"), std::nullopt);
  const auto wrong = policy_params(info, std::vector<std::string>{"delta=0.7"}).error();
  EXPECT_NE(wrong.message.find("delta"), std::string::npos);
  EXPECT_NE(wrong.message.find("0.7"), std::string::npos);
  EXPECT_NE(wrong.message.find("0.5]"), std::string::npos);
}

TEST(Registry, Tick) {
  EXPECT_EQ(policy_tick({}), from_seconds(0.2));
  ParamValues params;
  params.set("tick", {0.1});
  EXPECT_EQ(policy_tick(params), from_seconds(0.1));
}

// --- All policies --------------------------------------------------------------------------------

Estimate random_estimate(std::mt19937_64& random) {
  const auto n = [&](unsigned limit) { return static_cast<int>(random() % limit); };
  Estimate e = test_reading(135 + n(2000), n(101), n(101), 30 + n(700));
  e.node_gpu_utilisation += percent(n(500));
  if (n(10) == 0) e.gpu_utilisation.reset();
  if (n(10) == 0) e.memory_utilisation.reset();
  if (n(10) == 0) e.sm_clock.reset();
  if (n(10) == 0) e.power_usage.reset();
  if (n(3) == 0) e.tenants = n(4);
  if (n(3) == 0) e.requested_clock = Megahertz(135 + n(2000));
  e.idle = n(10) == 0;
  return e;
}

RC_GTEST_PROP(EveryPolicy, StaysInsideTheEnvelopeOfTheTick, (unsigned seed)) {
  for (const PolicyInfo& info : policies()) {
    std::mt19937_64 random(seed);
    const TestChip& chip = kTestChips[seed % 3];
    const Envelope full = test_envelope(chip);
    auto policy = *make_test_policy(info.name, chip);
    for (int tick = 0; tick < 150; ++tick) {
      const auto top = full.clocks()[random() % full.clocks().size()];
      const Envelope now =
          random() % 5 == 0 ? *Envelope::create(full.clocks(), full.lowest(), top) : full;
      Estimate estimate = random_estimate(random);
      estimate.time = Instant(tick * std::chrono::seconds(1));
      const Decision d = policy->decide(estimate, now);
      const bool inside = std::binary_search(now.clocks().begin(), now.clocks().end(), d.clock);
      if (d.kind == Kind::set && !inside) RC_FAIL(info.name);
      if (d.expected_performance) {
        RC_ASSERT(d.expected_performance->value() > 0);
        RC_ASSERT(d.expected_performance->value() <= 1);
      }
      RC_ASSERT(!describe(d.reason).empty());
    }
  }
}

// As though the fields that it does not say it needs could not be read.
Estimate with_needs_only(Estimate estimate, const Policy& policy) {
  const auto needs = policy.needs();
  const auto drop = [&](Field field, auto&... members) {
    const bool needed = std::any_of(needs.begin(), needs.end(),
                                    [&](const FieldNeed& need) { return need.field == field; });
    if (needed) return;
    ((members = {}), ...);
    estimate.origins[field].reset();
  };
  drop(Field::utilisation, estimate.gpu_utilisation, estimate.memory_utilisation);
  drop(Field::sm_clock, estimate.sm_clock);
  drop(Field::power_usage, estimate.power_usage);
  drop(Field::power_instant, estimate.power);
  drop(Field::energy, estimate.energy);
  drop(Field::throttle_reasons, estimate.throttle_reasons);
  drop(Field::activity, estimate.activity);
  drop(Field::tenants, estimate.tenants);
  return estimate;
}

RC_GTEST_PROP(EveryPolicy, ReadsTheFieldsThatItSaysItNeeds, (unsigned seed)) {
  for (const PolicyInfo& info : policies()) {
    std::mt19937_64 random(seed);
    const TestChip& chip = kTestChips[seed % 3];
    const Envelope envelope = test_envelope(chip);
    auto policy = *make_test_policy(info.name, chip), other = *make_test_policy(info.name, chip);
    FieldOrigins origins;
    for (int tick = 0; tick < 150; ++tick) {
      Estimate estimate = random_estimate(random);
      estimate.time = Instant(tick * std::chrono::milliseconds(200));
      if (random() % 2 == 0) estimate.activity.dram = percent(static_cast<double>(random() % 101));
      if (random() % 2 == 0) estimate.activity.sm = percent(static_cast<double>(random() % 101));
      if (random() % 5 == 0) estimate.energy = Joules(300 * tick);
      if (estimate.activity.sm) origins[Field::activity] = FieldOrigin{estimate.time};
      if (estimate.tenants) origins[Field::tenants] = FieldOrigin{estimate.time};
      estimate.origins = origins;
      const Decision decision = policy->decide(estimate, envelope);
      if (decision != other->decide(with_needs_only(estimate, *other), envelope))
        RC_FAIL(info.name);
    }
  }
}

// --- One by one ----------------------------------------------------------------------------------

TEST(MaxFreq, AsksForTheTopOfTheEnvelopeOfTheTick) {
  auto policy = *make_test_policy("max-freq", kV100);
  const Envelope full = test_envelope(kV100);
  const Envelope hot = *Envelope::create(full.clocks(), full.lowest(), Megahertz(1402));
  for (const auto& [envelope, clock] : {std::pair(&full, 1530), {&hot, 1402}, {&full, 1530}}) {
    const Decision d = policy->decide({}, *envelope);
    EXPECT_EQ(d.kind, Kind::set);
    EXPECT_EQ(d.clock, Megahertz(clock));
  }
}

TEST(EfficientFix, TakesTheEfficientClockOrTheOneGiven) {
  const auto clock = [](const std::vector<std::string>& params) {
    const Decision d =
        (*make_test_policy("efficient-fix", kV100, params))->decide({}, test_envelope(kV100));
    EXPECT_EQ(d.kind, Kind::set);
    return d.clock;
  };
  EXPECT_EQ(clock({}), Megahertz(952));
  EXPECT_EQ(clock({"clock=1207"}), Megahertz(1207));
}

TEST(EfficientFix, NamesTheNearestOfAnUnsupportedClock) {
  for (const auto& [wrong, nearest] :
       {std::pair("1200", "1200"), {"757", "952"}, {"1600", "1530"}, {"1209", "1207"}}) {
    const auto policy = make_test_policy("efficient-fix", kV100, {std::string("clock=") + wrong});
    if (std::string(wrong) == nearest) {
      EXPECT_TRUE(policy.ok());
      continue;
    }
    ASSERT_FALSE(policy.ok()) << wrong;
    EXPECT_EQ(policy.error().code, Errc::invalid_argument);
    EXPECT_NE(policy.error().message.find(wrong), std::string::npos);
    EXPECT_NE(policy.error().message.find(nearest), std::string::npos) << policy.error().message;
  }
}

TEST(NvBoost, SetsNothing) {
  auto policy = *make_test_policy("nv-boost", kV100);
  for (int tick = 0; tick < 50; ++tick)
    EXPECT_EQ(policy->decide(test_reading(1530, 100, 50, 200), test_envelope(kV100)).kind,
              Kind::release);
}

// Every 4 s one tick at the maximum; the reading taken there, a tick later, decides.
TEST(UtilizScale, ScalesWithTheUtilisationSeenAtFullClock) {
  const Envelope envelope = test_envelope(kV100);
  for (const auto& [utilisation, clock] :
       {std::pair(100, 1530), {90, 1380}, {80, 1230}, {63, 967}, {62, 952}, {0, 952}}) {
    SCOPED_TRACE(utilisation);
    auto policy = *make_test_policy("utiliz-scale", kV100);
    for (int tick = 0; tick < 60; ++tick) {
      // Only the reading of the tick after the look counts.
      const int seen = tick % 20 == 1 ? utilisation : 50;
      const Decision d = policy->decide(test_reading(1530, seen, 50, 200), envelope);
      EXPECT_EQ(d.kind, tick % 20 < 2 ? Kind::set : Kind::hold) << tick;
      const double asked = tick % 20 == 0 ? 1530 : tick % 20 == 1 ? clock : 0;
      EXPECT_EQ(d.clock, Megahertz(asked));
    }
  }
}

TEST(UtilizScale, HoldsWithoutAReading) {
  auto policy = *make_test_policy("utiliz-scale", kV100);
  const Envelope envelope = test_envelope(kV100);
  EXPECT_EQ(policy->decide({}, envelope).kind, Kind::hold);
  EXPECT_EQ(policy->decide(test_reading(1530, 80, 50, 200), envelope).clock, Megahertz(1530));
  EXPECT_EQ(policy->decide({}, envelope).kind, Kind::hold);
  EXPECT_EQ(policy->decide(test_reading(1530, 80, 50, 200), envelope).clock, Megahertz(1230));
}

TEST(UtilizScale, RefusesAnIntervalWithoutALook) {
  EXPECT_FALSE(make_test_policy("utiliz-scale", kV100, {"interval=0.2"}).ok());
  EXPECT_TRUE(make_test_policy("utiliz-scale", kV100, {"interval=0.4"}).ok());
}

// --- The manual ----------------------------------------------------------------------------------

TEST(PolicyDocs, EveryPolicyAndParameterIsDescribed) {
  for (const PolicyInfo& info : policies()) {
    const std::string path = std::string(DERATE_SOURCE_DIR) + "/docs/policies/" + info.name + ".md";
    const auto text = read_file(path);
    ASSERT_TRUE(text.ok()) << text.error().message;
    for (const ParamSpec& spec : info.params)
      EXPECT_NE(text->find(spec.name), std::string::npos) << path << " does not name " << spec.name;
  }
}

}  // namespace
}  // namespace derate
