#include "api/http_operation.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/json.h"

namespace derate {
namespace {

using Query = std::vector<std::pair<std::string, std::string>>;

TEST(HttpOperation, WhatBelongsToAConnectionIsNotServed) {
  EXPECT_EQ(http_operation("/v1/window-begin"), nullptr);
  EXPECT_EQ(http_operation("/v1/run-begin"), nullptr);
  EXPECT_EQ(http_operation("/v1/tune-trial-begin"), nullptr);
  EXPECT_EQ(http_operation("/v1/"), nullptr);
  EXPECT_EQ(http_operation("policy-set"), nullptr);
  ASSERT_NE(http_operation("/v1/policy-set"), nullptr);
  EXPECT_STREQ(http_method(*http_operation("/v1/policy-set")), "POST");
  ASSERT_NE(http_operation("/v1/status"), nullptr);
  EXPECT_STREQ(http_method(*http_operation("/v1/status")), "GET");
}

TEST(HttpOperation, EveryExampleIsARequest) {
  for (const Operation& each : operations()) {
    const Json example = parse_json(each.example);
    ASSERT_TRUE(example.is_object()) << each.name;
    if (each.http) {
      EXPECT_TRUE(request_named(each.name, example).ok()) << each.name;
    }
  }
}

TEST(HttpOperation, AQueryIsReadByTheTypesOfItsFields) {
  const Operation& show = operation<JobShow>();
  const auto request = request_of_query(show, Query{{"job", "12"}, {"before", "12"}});
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(*request, Json({{"job", "12"}, {"before", 12}}));
  EXPECT_TRUE(request_named(show.name, *request).ok());
}

TEST(HttpOperation, AWrongQueryNamesTheFieldAndWhatIsAllowed) {
  const Operation& show = operation<JobShow>();
  const auto error = [&](const Query& query) {
    const auto request = request_of_query(show, query);
    return request.ok() ? std::string() : request.error().message;
  };
  EXPECT_EQ(error({{"before", "x"}}), "before 'x': allowed is an integer");
  EXPECT_EQ(error({{"job", "a"}, {"job", "b"}}), "job: is there twice");
  EXPECT_EQ(error({{"jbo", "a"}}),
            "'jbo' is no field of tune-job-show; did you mean 'job'? There are: job, before");
}

RC_GTEST_PROP(HttpOperation, WhatIsWrittenAsAQueryIsReadAsTheSameText, (const std::string& text)) {
  const std::string query = query_of_request({{"command", "status"}, {"gpus", text}});
  for (const char c : query) RC_ASSERT((c > ' ' && c < 0x7f && c != '#' && c != '"'));
  RC_ASSERT(query.starts_with("gpus="));
}

TEST(HttpOperation, AnAnswersStatusTellsWhatHasFailed) {
  EXPECT_EQ(http_status(Json{{"ok", true}}), 200);
  EXPECT_EQ(http_status(Json{{"ok", false}, {"code", "no_permission"}}), 403);
  EXPECT_EQ(http_status(Json{{"ok", false}, {"code", "busy"}}), 503);
  EXPECT_EQ(http_status(Json{{"ok", false}, {"code", "of a newer version"}}), 500);
  EXPECT_EQ(http_status(Json{{"ok", false}, {"message", "GPU 0"}, {"code", "busy"}}), 207);
}

TEST(HttpOperation, TheDocumentHasEachOperationThatIsServed) {
  const Json document = openapi_json("1.0");
  std::size_t served = 0;
  for (const Operation& each : operations()) {
    EXPECT_EQ(document["paths"].contains(http_path(each)), each.http) << each.name;
    served += each.http ? 1 : 0;
  }
  EXPECT_EQ(document["paths"].size(), served);
  const Json& set = document["paths"]["/v1/policy-set"]["post"];
  EXPECT_EQ(set["requestBody"]["content"]["application/json"]["example"]["policy"], "assure");
  EXPECT_TRUE(set["responses"].contains("403"));
  EXPECT_EQ(document["paths"]["/v1/status"]["get"]["parameters"][0]["name"], "gpus");
}

}  // namespace
}  // namespace derate
