// What the daemon answers against the table of operations: every field is listed, of its type, and
// every failure is one that the operation tells.
#include <gtest/gtest.h>

#include <algorithm>

#include "api/operations.h"
#include "base/errc_word.h"
#include "base/json.h"
#include "house.h"

namespace derate::cli {
namespace {

bool is_of(FieldType type, const Json& value) {
  switch (type) {
    case FieldType::text:
      return value.is_string();
    case FieldType::flag:
      return value.is_boolean();
    case FieldType::integer:
      return value.is_number_integer();
    case FieldType::number:
      return value.is_number();
    case FieldType::object:
      return value.is_object();
  }
  return false;
}

void expect_fields(const Json& object, const std::vector<FieldInfo>& fields);

void expect_value(const Json& value, const FieldInfo& field) {
  if (value.is_null()) {
    EXPECT_TRUE(field.nullable) << field.key;
    return;
  }
  EXPECT_TRUE(is_of(field.type, value)) << field.key << ": " << value;
  if (field.type == FieldType::object && !field.fields.empty()) expect_fields(value, field.fields);
}

void expect_fields(const Json& object, const std::vector<FieldInfo>& fields) {
  for (const auto& [key, value] : object.items()) {
    const auto at = std::find_if(fields.begin(), fields.end(),
                                 [&, &name = key](const auto& field) { return field.key == name; });
    ASSERT_NE(at, fields.end()) << key << " of " << object;
    if (!at->list) {
      expect_value(value, *at);
      continue;
    }
    ASSERT_TRUE(value.is_array()) << key;
    for (const Json& each : value) expect_value(each, *at);
  }
  for (const FieldInfo& field : fields)
    if (field.required) {
      EXPECT_TRUE(object.contains(field.key)) << field.key << " of " << object;
    }
}

class Answers : public testing::Test {
 protected:
  Answers() : house(2) {
    house.attribution.where = BackgroundWorker::Where::at_once;
    house.attribution.name = [](const GpuId&, const Tenancy&, const SaidJobs&) {
      return TenantNames{};
    };
    house.start();
    house.run(std::chrono::seconds(3));
  }
  // The answer, which was checked.
  Json ask(Json request) {
    const Operation* operation = find_operation(request["command"].get<std::string>());
    std::string text = operation->role >= Role::operates ? house.ask(json_text(request))
                                                         : house.call(1, json_text(request));
    for (int i = 0; text.empty() && i < 20; ++i) {
      house.run(std::chrono::milliseconds(100));
      for (const auto& [connection, late] : house.worker->clients().take_late()) text = late;
    }
    Json answer = parse_json(text);
    check(answer, *operation);
    return answer;
  }

  House house;

 private:
  static void check(const Json& answer, const Operation& operation) {
    SCOPED_TRACE(operation.name);
    ASSERT_TRUE(answer.is_object());
    if (answer["ok"] == false) {
      const auto code = errc_of(answer["code"].get<std::string>());
      ASSERT_TRUE(code);
      EXPECT_TRUE(may_fail_with(operation, *code)) << answer;
      if (!answer.contains("gpus")) return;  // nothing was done
    }
    Json fields = answer;
    const auto said = [](const FieldInfo& field) { return field.key == "ok"; };
    if (std::none_of(operation.answer.begin(), operation.answer.end(), said)) fields.erase("ok");
    expect_fields(fields, operation.answer);
  }
};

TEST_F(Answers, OfOperators) {
  EXPECT_EQ(ask({{"command", "policy-set"}, {"policy", "max-freq"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "policy-set"}, {"policy", "turbo"}})["ok"], false);
  house.trouble(0).faults.no_permission = true;
  EXPECT_EQ(ask({{"command", "release"}})["ok"], false);
  house.trouble(0).faults.no_permission = false;
  EXPECT_EQ(ask({{"command", "release"}, {"gpus", "1"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "release"}, {"gpus", "9"}})["ok"], false);
  EXPECT_EQ(ask({{"command", "policy-confirm"}})["code"], "not_found");
  EXPECT_EQ(ask({{"command", "policy-set"},
                 {"policy", "assure"},
                 {"gpus", "0"},
                 {"confirm_within_seconds", 30}})["ok"],
            true);
  EXPECT_EQ(ask({{"command", "policy-confirm"}})["gpus"].size(), 1u);  // what is on trial
  EXPECT_EQ(ask({{"command", "policy-confirm"}, {"gpus", "0"}})["code"], "not_found");
  EXPECT_EQ(ask({{"command", "pause"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "release"}})["code"], "busy");
  EXPECT_EQ(ask({{"command", "resume"}})["ok"], true);
}

// Before anything is changed, and by whoever may read.
TEST_F(Answers, OfForecasts) {
  EXPECT_NE(ask({{"command", "forecast"}, {"gpu", "0"}})["why"], nullptr);
  EXPECT_EQ(ask({{"command", "forecast"}, {"gpu", "0,1"}})["ok"], false);
  EXPECT_EQ(ask({{"command", "forecast"}, {"gpu", "7"}})["code"], "not_found");
  house.sim(0).start(*find_workload(house.sim(0).chip(), "GeMM"), std::chrono::hours(1));
  ask({{"command", "policy-set"},
       {"policy", "assure"},
       {"gpus", "0"},
       {"confirm_within_seconds", 60}});
  house.run(std::chrono::seconds(30));
  const Json answer = ask({{"command", "forecast"}, {"gpu", "0"}});
  EXPECT_EQ(answer["policy"], "assure");
  EXPECT_EQ(answer["now_delta_ratio"], 0.1);
  EXPECT_NEAR(answer["unconfirmed_seconds"].get<double>(), 30, 1);
  ASSERT_FALSE(answer["forecasts"].empty()) << answer;
  for (const Json& each : answer["forecasts"])
    EXPECT_LT(each["saving_low_ratio"], each["saving_high_ratio"]);
}

// Watched from the first question on, and forgotten when nobody asks.
TEST_F(Answers, OfAdvice) {
  EXPECT_EQ(ask({{"command", "advice"}, {"gpu", "0,1"}})["ok"], false);
  EXPECT_EQ(ask({{"command", "advice"}, {"gpu", "7"}})["code"], "not_found");
  house.sim(0).start(*find_workload(house.sim(0).chip(), "GeMM"), std::chrono::hours(1));
  const Json first = ask({{"command", "advice"}, {"gpu", "0"}});
  EXPECT_EQ(first["watched_seconds"], 0);
  EXPECT_FALSE(first.contains("working_ratio"));
  house.run(std::chrono::seconds(30));
  const Json half = ask({{"command", "advice"}, {"gpu", "0"}});
  EXPECT_NEAR(half["watched_seconds"].get<double>(), 30, 2);
  EXPECT_GT(half["working_ratio"], 0.5);
  house.run(std::chrono::seconds(60));
  const Json whole = ask({{"command", "advice"}, {"gpu", "0"}});
  EXPECT_NEAR(whole["watched_seconds"].get<double>(), whole["wanted_seconds"].get<double>(), 2);
  for (const Json& each : whole["advice"]) EXPECT_FALSE(each["tries"].empty());
  house.run(std::chrono::minutes(3));
  EXPECT_EQ(ask({{"command", "advice"}, {"gpu", "0"}})["watched_seconds"], 0);
}

// What is tried differs by what is named, and never writes where nothing was to be written.
TEST_F(Answers, OfATrialThatKeepsTheRest) {
  const auto set = [&](Json request) {
    request.update({{"command", "policy-set"}, {"policy", "assure"}, {"gpus", "0"}});
    EXPECT_EQ(ask(request)["ok"], true);
    return house.worker->fleet().gpus()[0].policy();
  };
  set({{"set", {"confidence=0.95", "delta=0.05"}}, {"dry_run", true}});
  const PolicyAssignment* tried = set({{"set", {"delta=0.2"}}, {"confirm_within_seconds", 30}});
  ASSERT_NE(tried, nullptr);
  EXPECT_EQ(tried->policy.params.number("delta"), 0.2);
  EXPECT_EQ(tried->policy.params.number("confidence"), 0.95);
  EXPECT_TRUE(tried->dry_run);
}

TEST_F(Answers, OfWindowsAndAttribution) {
  EXPECT_EQ(ask({{"command", "gpus"}})["gpus"].size(), 2u);
  EXPECT_EQ(ask({{"command", "window-begin"}, {"name", "a"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "window-begin"}, {"name", "b"}, {"gpus", "0"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "windows"}})["windows"].size(), 2u);
  EXPECT_EQ(ask({{"command", "window-end"}, {"name", "a"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "window-cancel"}, {"name", "b"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "window-end"}, {"name", "a"}})["ok"], false);
  EXPECT_EQ(ask({{"command", "attribution"}})["enabled"], true);
  EXPECT_EQ(ask({{"command", "attribution"}, {"after", "GPU-x"}})["ok"], false);
}

TEST_F(Answers, OfJobsAndTrials) {
  const Json spec = {{"name", "bert"},
                     {"batch_sizes", {8, 16}},
                     {"default", 8},
                     {"target", 0.7},
                     {"max_epochs", 4}};
  EXPECT_EQ(ask({{"command", "tune-job-create"}, {"spec", spec}})["ok"], true);
  EXPECT_EQ(ask({{"command", "tune-job-show"}, {"job", "gpt"}})["ok"], false);
  const Json trial = ask({{"command", "tune-trial-begin"}, {"job", "bert"}, {"gpus", "0"}});
  ASSERT_EQ(trial["ok"], true) << trial;
  const Json whose = {{"trial", trial["trial"]}, {"token", trial["token"]}};
  const auto of_it = [&](Json request) {
    request.update(whose);
    return ask(std::move(request));
  };
  house.run(std::chrono::seconds(2));
  EXPECT_EQ(of_it({{"command", "tune-trial-renew"}})["ok"], true);
  EXPECT_EQ(of_it({{"command", "tune-trial-report"}, {"epoch", 1}, {"metric", 0.2}})["ok"], true);
  EXPECT_EQ(ask({{"command", "tune-trial-renew"}, {"trial", trial["trial"]}, {"token", "x"}})["ok"],
            false);
  EXPECT_EQ(of_it({{"command", "tune-trial-end"}, {"outcome", "missed"}})["ok"], true);
  EXPECT_EQ(ask({{"command", "tune-job-show"}, {"job", "bert"}})["history"].size(), 1u);
  EXPECT_EQ(ask({{"command", "tune-job-list"}})["jobs"].size(), 1u);
  EXPECT_EQ(ask({{"command", "tune-job-remove"}, {"job", "bert"}})["ok"], true);
}

}  // namespace
}  // namespace derate::cli
