#include "api/requests.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/json.h"

namespace derate {
namespace {

std::string some_text() { return *rc::gen::element<std::string>("a", "bert", "x y\n\"", "0,1"); }
std::optional<double> maybe() {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  return *rc::gen::inRange(-1000, 1000) / 8.0;
}

JobSpec some_spec() {
  JobSpec out{.name = some_text(),
              .batch_sizes = *rc::gen::arbitrary<std::vector<int>>(),
              .default_size = *rc::gen::arbitrary<int>(),
              .target = *rc::gen::inRange(-1000, 1000) / 8.0,
              .lower_is_better = *rc::gen::arbitrary<bool>(),
              .max_epochs = *rc::gen::arbitrary<int>()};
  out.budget = maybe();
  if (*rc::gen::arbitrary<bool>()) out.model = some_text();
  // Empty is another thing than absent where what is absent has a default.
  for (std::string* text : {&out.policy, &out.knob, &out.selector})
    if (*rc::gen::arbitrary<bool>()) *text = *rc::gen::element(std::string(), some_text());
  return out;
}

AnyRequest some_request() {
  const auto id = *rc::gen::arbitrary<std::int64_t>();
  switch (*rc::gen::inRange(0, 8)) {
    case 0:
      return JobCreate{some_spec(), *rc::gen::arbitrary<bool>()};
    case 1:
      return JobShow{some_text(), *rc::gen::arbitrary<bool>() ? std::optional(id) : std::nullopt};
    case 2:
      return JobList{*rc::gen::arbitrary<bool>() ? some_text() : ""};
    case 3:
      return JobRemove{some_text()};
    case 4:
      return TrialStart{.job = some_text(), .gpus = some_text(), .retry_of = id};
    case 5:
      return TrialReport{id, some_text(), maybe(), maybe(), maybe()};
    case 6:
      return TrialEnd{id, some_text(), some_text()};
    default:
      return TrialRenew{id, some_text()};
  }
}

RC_GTEST_PROP(Requests, ReadsWhatItWrites, ()) {
  const AnyRequest request = some_request();
  RC_ASSERT(*parse_request(request_text(request)) == request);
  TrialView view{.trial = 7, .token = some_text(), .state = "running", .batch_size = 8};
  view.energy_joules = maybe();
  RC_ASSERT(*answer_of<TrialView>(answer_json(view)) == view);
  JobView job{.spec = some_spec(), .uid = 3};
  job.cheapest_joules = maybe();
  const JobAnswer answer{some_text(), job, {view, view}, 7};
  RC_ASSERT(*answer_of<JobAnswer>(answer_json(answer)) == answer);
  const JobsAnswer jobs{{job}, some_text()};
  RC_ASSERT(*answer_of<JobsAnswer>(answer_json(jobs)) == jobs);
}

std::string error_of(const char* text) {
  const auto request = parse_request(text);
  return request.ok() ? "" : request.error().message;
}

TEST(Requests, AreStrict) {
  EXPECT_EQ(error_of(R"({"command":"tune-job-list"})"), "");
  EXPECT_EQ(error_of("[]"), "wanted a JSON object");
  EXPECT_EQ(error_of(R"({"command":"tune-trial-report","trial":1,"token":"a","metric":NaN})"),
            "wanted a JSON object");
  EXPECT_EQ(error_of(R"({"command":"tune-jobs"})").substr(0, 48),
            "command 'tune-jobs': allowed are policy-set, rel");
  EXPECT_EQ(error_of(R"({"command":"tune-job-show"})"), "tune-job-show: job: is missing");
  EXPECT_EQ(error_of(R"({"command":"tune-job-show","job":3})"),
            "tune-job-show: job 3: wanted a text");
  EXPECT_EQ(error_of(R"({"command":"tune-job-list","all":true})"),
            "tune-job-list: unknown field 'all'; there are after");
  EXPECT_EQ(error_of(R"({"command":"tune-trial-renew","trial":1.5,"token":""})"),
            "tune-trial-renew: trial 1.5: wanted an integer");
  EXPECT_EQ(error_of(R"({"command":"tune-trial-renew","trial":18446744073709551615,"token":""})"),
            "tune-trial-renew: trial 18446744073709551615: wanted an integer");
  EXPECT_EQ(error_of(R"({"command":"tune-trial-report","trial":1,"token":"","metric":"0.6"})"),
            "tune-trial-report: metric \"0.6\": wanted a number");
  EXPECT_EQ(error_of(R"({"command":"tune-trial-report","trial":1,"token":"","metric":null})"),
            "tune-trial-report: metric null: wanted a number");
  EXPECT_EQ(error_of(R"({"command":"tune-job-create","spec":{"name":"a","batch_sizes":[8,"9"]}})"),
            "tune-job-create: spec: batch_sizes \"9\": wanted an integer");
}

TEST(Requests, AnAnswerMaySayMore) {
  EXPECT_TRUE(
      answer_of<TrialView>(parse_json(R"({"trial":1,"state":"lost","stop":true,"new":1})")).ok());
  EXPECT_EQ(answer_of<TrialView>(parse_json(R"({"trial":1,"state":"lost"})")).error().code,
            Errc::bad_data);
}

}  // namespace
}  // namespace derate
