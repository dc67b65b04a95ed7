#include "service/http/api_call.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "service/http/event_reader.h"

namespace derate {
namespace {

TEST(ApiCall, WhatChangesNothingIsAGetAndElseAPost) {
  const HttpAsk history = api_request(HistoryRead{.from = "2026-11-01T12:00Z", .gpus = "0,1"});
  EXPECT_EQ(history.method, "GET");
  EXPECT_EQ(history.target,
            "/v1/history?from=2026-11-01T12%3A00Z&to=now&gpus=0%2C1&kind=gpu&points=1000");
  EXPECT_EQ(history.body, "");
  EXPECT_EQ(api_request(GpuList{}).target, "/v1/gpus");
  const HttpAsk set = api_request(PolicySet{.policy = "assure", .set = {"delta=0.05", "a=b c"}});
  EXPECT_EQ(set.method, "POST");
  EXPECT_EQ(set.target, "/v1/policy-set");
  EXPECT_EQ(parse_json(set.body)["set"][1], "a=b c");
}

TEST(ApiCall, ErrorsKeepTheirKind) {
  const auto code = [](int status, std::string body) {
    return api_answer({.status = status, .body = std::move(body)}).error().code;
  };
  EXPECT_EQ(code(403, R"({"ok":false,"error":"no","code":"no_permission","exit_code":4})"),
            Errc::no_permission);
  EXPECT_EQ(code(200, R"({"ok":false,"error":"gone","code":"gpu_lost"})"), Errc::gpu_lost);
  EXPECT_EQ(code(429, "slow down"), Errc::busy);
  EXPECT_EQ(code(404, ""), Errc::not_found);
  EXPECT_EQ(code(500, "{}"), Errc::io);
  EXPECT_EQ(code(200, "<html>"), Errc::io);
  EXPECT_EQ(api_answer({.body = R"({"ok":true,"gpus":[]})"})->size(), 2u);
  EXPECT_TRUE(api_answer({.body = R"({"gpus":[]})"}).ok());
}

// As docs/api.md promises of every answer that is not ok.
TEST(ApiCall, WhatAServerRefusesHasACodeToo) {
  for (const int status : {400, 401, 403, 404, 405, 408, 413, 414, 421, 429, 431, 502, 503, 505}) {
    const HttpResponse refused = error_response(status, "no");
    const Json body = parse_json(refused.body);
    EXPECT_EQ(body["ok"], false);
    const auto code = errc_of(body["code"].get<std::string>());
    ASSERT_TRUE(code) << status;
    EXPECT_EQ(body["exit_code"], exit_code_of(*code)) << status;
    EXPECT_EQ(api_answer(refused).error().code, *code) << status;
  }
}

std::vector<StreamedEvent> all_of(const std::string& text, std::size_t piece) {
  EventReader reader;
  std::vector<StreamedEvent> out;
  for (std::size_t at = 0; at < text.size(); at += piece)
    for (StreamedEvent& each : reader.take(std::string_view(text).substr(at, piece)))
      out.push_back(std::move(each));
  return out;
}

TEST(EventReader, ReadsWhatEndsWithABlankLine) {
  const std::string text =
      ": hello\n\nid: 17\r\nevent: lost\r\ndata: {\"id\":17,\"time_unix_seconds\":1.5,"
      "\"event\":\"lost\",\r\ndata: \"severity\":\"error\",\"message\":\"gone\","
      "\"fields\":{\"error\":\"x\"}}\r\n\r\nevent: missed\ndata: {\"missed\":12}\n\nid: 18\ndata: "
      "h";
  for (const std::size_t piece : {1u, 2u, 7u, 1000u}) {
    const auto events = all_of(text, piece);
    ASSERT_EQ(events.size(), 2u);
    EXPECT_EQ(events[0].id, 17);
    const auto event = event_of(events[0]);
    ASSERT_TRUE(event);
    EXPECT_EQ(event->message, "gone");
    EXPECT_EQ(event->fields.all.at(0).first, "error");
    EXPECT_EQ(events[1].name, "missed");
    EXPECT_EQ(missed_of(events[1]), 12);
    EXPECT_FALSE(event_of(events[1]));
  }
}

RC_GTEST_PROP(EventReaderProperty, PiecesDoNotMatter, ()) {
  const auto part = rc::gen::element<std::string>("data: ", "id: ", "event", ":", "\n", "\n\n",
                                                  "\r\n", "7", "{}", " ");
  std::string text;
  for (const std::string& each : *rc::gen::container<std::vector<std::string>>(part)) text += each;
  RC_ASSERT(all_of(text, 1) == all_of(text, 1000));
}

}  // namespace
}  // namespace derate
