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
  switch (*rc::gen::inRange(0, 10)) {
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
    case 8:
      return ConfigSet{{some_text()}, {some_text(), some_text()}, *rc::gen::arbitrary<bool>()};
    case 9:
      return TokenCreate{some_text(), some_text(), *rc::gen::inRange(1, 8000) / 8.0};
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
  const SettingView setting{some_text(), some_text(), "", "f:1:2", *rc::gen::arbitrary<bool>()};
  const SettingsAnswer settings{{setting, {}}, some_text()};
  RC_ASSERT(*answer_of<SettingsAnswer>(answer_json(settings)) == settings);
  const ConfigChangesAnswer changes{some_text(), {{some_text(), "1", "", true}}};
  RC_ASSERT(*answer_of<ConfigChangesAnswer>(answer_json(changes)) == changes);
  const TokensAnswer tokens{{{some_text(), "user", "uid 0", 1, 2, true}}, 7};
  RC_ASSERT(*answer_of<TokensAnswer>(answer_json(tokens)) == tokens);
  const JobsAnswer jobs{{job}, some_text()};
  RC_ASSERT(*answer_of<JobsAnswer>(answer_json(jobs)) == jobs);
}

// --- the history ---------------------------------------------------------------------------------

NumberColumn some_column(std::size_t length) {
  if (*rc::gen::arbitrary<bool>()) return std::nullopt;
  std::vector<std::optional<double>> out;
  for (std::size_t i = 0; i < length; ++i) out.push_back(maybe());
  return out;
}

RC_GTEST_PROP(Requests, ReadsWhatItWritesOfTheHistory, ()) {
  const AnyRequest requests[] = {
      HistoryRead{some_text(), some_text(), some_text(), "tenant", 17}, HistoryRead{},
      SavingsRead{"user", some_text(), some_text()},
      EventsRead{some_text(), "", "0", *rc::gen::inRange<std::int64_t>(0, 1000), 5},
      WhyRead{"1", some_text(), 3}};
  for (const AnyRequest& request : requests)
    RC_ASSERT(*parse_request(request_text(request)) == request);
  HistorySeriesView series{.gpu = "GPU-1", .index = 0, .kind = "gpu", .policy = ""};
  series.begin_unix_seconds = {60, 120, 240};
  series.covered_ratio = {1, 0.5, 1};
  series.power_watts = some_column(3);
  series.saved_joules = some_column(3);
  series.throttle_bits = {{4, std::nullopt, 0}};
  const HistoryAnswer history{0, 300, 60, 60, 300, {series, series}, {{"tenant", 1, 77}}, 3};
  RC_ASSERT(*answer_of<HistoryAnswer>(answer_json(history)) == history);
  EventView event{.id = 3, .time_unix_seconds = 1.25, .event = "lost", .severity = "error"};
  event.fields.all = {{"from", some_text()}, {"to", ""}};
  const EventsAnswer events{{event, {}}};
  RC_ASSERT(*answer_of<EventsAnswer>(answer_json(events)) == events);
  DecisionView decision{.time_unix_seconds = 1.5, .policy = some_text()};
  decision.asked_clock_mhz = maybe();
  const WhyAnswer why{"GPU-1", {}, 2, decision, MeasuredView{.seconds = 1}, {decision}};
  RC_ASSERT(*answer_of<WhyAnswer>(answer_json(why)) == why);
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
  EXPECT_EQ(error_of(R"({"command":"tune-jobs"})").substr(0, 45),
            "command 'tune-jobs': allowed are policy-set, ");
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
