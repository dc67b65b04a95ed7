#include "govern/job_classes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "core/job_class.h"

namespace derate {
namespace {

ProcessFacts process(const char* name, std::uint32_t uid = 1000, const char* asked = "") {
  ProcessFacts out;
  out.pid = 17;
  out.uid = uid;
  out.name = name;
  out.asked = asked;
  return out;
}

JobRule rule(const char* name, const char* glob, double delta) {
  JobRule out;
  out.name = name;
  out.process = glob;
  out.delta = Fraction(delta);
  return out;
}

TEST(JobClasses, TheTableKeepsWithinTheDefaults) {
  EXPECT_EQ(job_class_names(), "training, inference, batch");
  for (const JobClass& one : job_classes()) {
    EXPECT_LE(Fraction(one.delta), PromiseRules{}.max_delta);
    EXPECT_EQ(find_job_class(one.name), &one);
    EXPECT_EQ(parse_asked_loss(one.name)->delta, Fraction(one.delta));
    EXPECT_FALSE(parse_asked_loss(std::string(one.name) + "s").ok());
  }
  EXPECT_TRUE(find_job_class("inference")->every_phase);
}

TEST(JobClasses, TheDocumentationHasTheTable) {
  const std::string page = *read_file(DERATE_SOURCE_DIR "/docs/heartbeats.md");
  for (const JobClass& one : job_classes()) {
    const std::string row = fmt::format("| `{}` | {} | {}| {} |\n", one.name, one.delta,
                                        one.every_phase ? "yes " : "", one.summary);
    EXPECT_NE(page.find(row), std::string::npos) << row;
  }
}

TEST(JobClasses, TheFirstRuleThatMatchesHolds) {
  PromiseRules rules;
  rules.rules = {rule("llm", "vllm*", 0.05), rule("any python", "python3*", 0.2),
                 rule("rest", "", 0.1)};
  rules.rules[1].uid = 1000;
  EXPECT_EQ(matching_rule(process("vllm-worker"), rules.rules)->name, "llm");
  EXPECT_EQ(matching_rule(process("VLLM::EngineCor"), rules.rules)->name, "llm");  // 15 bytes
  EXPECT_EQ(matching_rule(process("python3.11"), rules.rules)->name, "any python");
  EXPECT_EQ(matching_rule(process("python3.11", 7), rules.rules)->name, "rest");
  rules.rules[2].nobody = true;
  EXPECT_EQ(matching_rule(process("a.out"), rules.rules), nullptr);
  EXPECT_EQ(promise_of(process("a.out"), {}, rules), std::nullopt);
  ProcessFacts unknown;  // a user's rule holds for nobody whose user is not known
  rules.rules[1].process = "";
  EXPECT_EQ(matching_rule(unknown, std::span(rules.rules).subspan(1, 1)), nullptr);
}

TEST(JobClasses, AProcessMayTightenFreelyAndLoosenUpToMaxDelta) {
  PromiseRules rules;
  rules.max_delta = Fraction(0.2);
  rules.rules = {rule("mine", "", 0.1)};
  rules.rules[0].every_phase = true;
  const auto loss = [&](const char* asked, std::optional<Fraction> told) {
    return max_loss(*promise_of(process("x", 1, asked), told, rules));
  };
  EXPECT_EQ(loss("", {}), Fraction(0.1));
  EXPECT_EQ(loss("0.01", {}), Fraction(0.01));
  EXPECT_EQ(loss("batch", {}), Fraction(0.2));
  EXPECT_EQ(loss("0.15", {}), Fraction(0.15));
  EXPECT_EQ(loss("five", {}), Fraction(0.1));
  EXPECT_EQ(loss("", Fraction(0.5)), Fraction(0.2));
  EXPECT_EQ(loss("0.15", Fraction(0.02)), Fraction(0.02));
  EXPECT_EQ(loss("0.02", Fraction(0.15)), Fraction(0.02));
  EXPECT_TRUE(promise_of(process("x", 1, "0.15"), {}, rules)->every_phase);
  EXPECT_EQ(promise_of(process("x", 1, "0.15"), Fraction(0.01), rules)->origin, "beat");
}

TEST(JobClasses, AskingIsSaidPlainly) {
  EXPECT_EQ(parse_asked_loss("5%").error().message,
            "DERATE_DELTA '5%': allowed is a number in [0, 0.5] or one of training, inference, "
            "batch");
  for (const char* bad : {"", "-0.1", "0.6", "nan", "inf", "0,1"})
    EXPECT_FALSE(parse_asked_loss(bad).ok()) << bad;
}

// The value is another's, and what is said of it goes into a log.
RC_GTEST_PROP(JobClassesProperty, NothingOfAValueIsShownThatALogWouldObey, (std::string text)) {
  if (*rc::gen::arbitrary<bool>())
    text += "\n<0>derated: all is lost\x1b[2J" + std::string(100, 'x');
  const auto asked = parse_asked_loss(text);
  if (asked.ok()) return;
  const std::string& message = asked.error().message;
  for (const char c : message) RC_ASSERT((c >= ' ' && c <= '~'));
  const std::string around = parse_asked_loss("").error().message;
  RC_ASSERT(message.size() <= around.size() + 32 + 3);
}

// A user's number that is not known yet may make a rule hold: it is not passed over for a laxer
// one.
TEST(JobClasses, ARuleWhoseUserIsNotKnownYetNeverLoosens) {
  PromiseRules rules;
  rules.rules = {rule("ann's", "", 0.02), rule("rest", "", 0.3)};
  rules.rules[0].unknown = true;
  EXPECT_EQ(matching_rule(process("x"), rules.rules)->name, "ann's");
  std::swap(rules.rules[0].delta, rules.rules[1].delta);
  EXPECT_EQ(matching_rule(process("x"), rules.rules)->name, "rest");
  rules.rules.pop_back();  // the policy's own promise may be the stricter
  EXPECT_EQ(matching_rule(process("x"), rules.rules), nullptr);
}

// --- of all tenants ------------------------------------------------------------------------------

rc::Gen<double> a_loss() {
  return rc::gen::map(rc::gen::inRange(0, 51), [](int n) { return n / 100.0; });
}

std::optional<Promise> any_promise(const PromiseRules& rules) {
  const char* asked[] = {"", "0.02", "0.45", "batch", "inference", "nonsense"};
  std::optional<Fraction> told;
  if (*rc::gen::arbitrary<bool>()) told = Fraction(*a_loss());
  return promise_of(process(*rc::gen::element("a", "b", "c"), 1, asked[*rc::gen::inRange(0, 6)]),
                    told, rules);
}

PromiseRules any_rules() {
  PromiseRules rules;
  rules.max_delta = Fraction(*a_loss());
  for (const char* name : {"a", "b"})
    if (*rc::gen::arbitrary<bool>()) rules.rules.push_back(rule(name, name, *a_loss()));
  return rules;
}

RC_GTEST_PROP(PromiseProperty, TheStrictestWinsWhateverTheOrder, ()) {
  const PromiseRules rules = any_rules();
  std::vector<std::optional<Promise>> tenants;
  for (int i = *rc::gen::inRange(0, 5); i > 0; --i) tenants.push_back(any_promise(rules));
  const std::optional<Fraction> own =
      *rc::gen::arbitrary<bool>() ? std::optional(Fraction(*a_loss())) : std::nullopt;
  const auto of_all = [&](const auto& each) {
    return strictest(promises_to(each, own), kThroughput);
  };
  const auto all = of_all(tenants);
  const bool some = std::any_of(tenants.begin(), tenants.end(), [](auto& t) { return !!t; });
  RC_ASSERT(all.has_value() == some);
  if (!all) return;
  RC_ASSERT(max_loss(*all) <= rules.max_delta);
  for (const auto& one : tenants) {
    if (one) RC_ASSERT(max_loss(*all) <= max_loss(*one));
    if (one && one->every_phase) RC_ASSERT(all->every_phase);
    if (!one && own) RC_ASSERT(max_loss(*all) <= *own);
  }
  auto other_order = tenants;
  std::rotate(other_order.begin(), other_order.begin() + 1, other_order.end());
  RC_ASSERT(of_all(other_order) == all);
  std::reverse(other_order.begin(), other_order.end());
  RC_ASSERT(of_all(other_order) == all);
  // One more tenant never loosens it.
  tenants.push_back(any_promise(rules));
  RC_ASSERT(max_loss(*of_all(tenants)) <= max_loss(*all));
}

}  // namespace
}  // namespace derate
