#include "tune/job.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <functional>

namespace derate {
namespace {

JobSpec some_job() {
  return {.name = "bert",
          .batch_sizes = {8, 16, 32},
          .default_size = 16,
          .target = 0.6,
          .max_epochs = 20};
}

std::string error_with(const std::function<void(JobSpec&)>& change) {
  JobSpec job = some_job();
  change(job);
  const auto checked = check_job(job);
  return checked.ok() ? "" : checked.error().message;
}

TEST(Job, ErrorsNameTheValueAndWhatIsAllowed) {
  EXPECT_EQ(error_with([](JobSpec&) {}), "");
  EXPECT_EQ(error_with([](JobSpec& j) {
              j.batch_sizes = {0, 16};
            }),
            "batch_sizes 0: allowed is a number in [1, 16777216]");
  EXPECT_EQ(error_with([](JobSpec& j) {
              j.batch_sizes = {16, 8, 16};
            }),
            "batch_sizes 16: allowed is each once");
  EXPECT_EQ(error_with([](JobSpec& j) { j.batch_sizes.clear(); }), "batch_sizes: is empty");
  EXPECT_EQ(error_with([](JobSpec& j) { j.batch_sizes.assign(65, 1); }),
            "batch_sizes of 65 numbers: allowed are 64");
  EXPECT_EQ(error_with([](JobSpec& j) { j.default_size = 24; }),
            "default 24: allowed are 8, 16, 32");
  EXPECT_EQ(error_with([](JobSpec& j) { j.target = NAN; }),
            "target nan: allowed is a finite number");
  EXPECT_EQ(error_with([](JobSpec& j) { j.target = -INFINITY; }),
            "target -inf: allowed is a finite number");
  EXPECT_EQ(error_with([](JobSpec& j) { j.max_epochs = 0; }),
            "max_epochs 0: allowed is a number in [1, 1000000]");
  EXPECT_EQ(error_with([](JobSpec& j) { j.eta = 1.5; }), "eta 1.5: allowed is a number in [0, 1]");
  EXPECT_EQ(error_with([](JobSpec& j) { j.beta = 0.9; }),
            "beta 0.9: allowed is a number in [1, 1000]");
  EXPECT_EQ(error_with([](JobSpec& j) { j.budget = -1; }),
            "budget -1: allowed is a number in [0, 1000]");
  EXPECT_EQ(error_with([](JobSpec& j) { j.policy = "best"; }),
            "policy 'best': there are tune, zeus");
  EXPECT_EQ(error_with([](JobSpec& j) { j.knob = "fan"; }),
            "knob 'fan': allowed are power-limit, clock, none");
  EXPECT_EQ(error_with([](JobSpec& j) { j.selector = "cheap"; }).substr(0, 25),
            "selector 'cheap': allowed");
  for (const std::string& bad : {std::string(), std::string("two words"), std::string(65, 'x'),
                                 std::string("a\nb"), std::string("\xc3\xa9"), std::string("."),
                                 std::string(".."), std::string(".a"), std::string("-rf")})
    EXPECT_EQ(error_with([&](JobSpec& j) { j.name = bad; }),
              "name '" + bad +
                  "': allowed are 1 to 64 letters, digits, '.', '-' and '_', not "
                  "'.' or '-' first");
}

TEST(Job, DifferencesNameEachFieldWithBothValues) {
  JobSpec other = some_job();
  EXPECT_EQ(differences(some_job(), other), "");
  other.target = 0.7;
  other.batch_sizes = {8, 16};
  other.budget = 0.1;
  other.lower_is_better = true;
  EXPECT_EQ(differences(some_job(), other),
            "batch_sizes (8,16,32, now 8,16), target (0.6, now 0.7), lower_is_better (false, now "
            "true), budget (none, now 0.1)");
}

// Every field takes part: one that visit_job_spec() forgot would differ unseen.
RC_GTEST_PROP(Job, DiffersExactlyWhereItsFieldsDo, (double target, int epochs, bool lower)) {
  JobSpec other = some_job();
  other.target = target;
  other.max_epochs = epochs;
  other.lower_is_better = lower;
  other.seed = *rc::gen::inRange(0, 3);
  other.model = *rc::gen::element(std::string(), std::string("m"));
  RC_ASSERT(differences(some_job(), other).empty() == (other == some_job()));
}

TEST(Job, CostTakesTheJobsEta) {
  JobSpec job = some_job();
  job.eta = 0.2;
  EXPECT_EQ(selector_of(job).eta, 0.2);
  job.selector = "cost:0.9";
  EXPECT_EQ(selector_of(job).eta, 0.9);
  EXPECT_EQ(model_of(job), "bert");
  job.model = "bert-base";
  EXPECT_EQ(model_of(job), "bert-base");
}

TEST(Job, ALossIsReachedFromAbove) {
  JobSpec job = some_job();
  EXPECT_TRUE(is_reached(job, 0.6) && is_reached(job, 0.7) && !is_reached(job, 0.5));
  EXPECT_TRUE(is_better(job, 0.3, 0.2) && !is_better(job, 0.2, 0.2));
  job.lower_is_better = true;
  EXPECT_TRUE(is_reached(job, 0.6) && !is_reached(job, 0.7) && is_reached(job, 0.5));
  EXPECT_TRUE(is_better(job, 0.2, 0.3) && !is_better(job, 0.3, 0.3));
}

}  // namespace
}  // namespace derate
