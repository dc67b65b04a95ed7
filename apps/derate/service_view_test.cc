#include "service_view.h"

#include <gtest/gtest.h>

#include "api/requests.h"
#include "base/json.h"
#include "service/records/test_snapshot.h"
#include "test_text.h"

namespace derate::cli {
namespace {

ServiceView chat() {
  ServiceView out = full_service();
  out.gpus[0].index = 3;
  return out;
}

std::string text_of(std::vector<ServiceView> services) {
  return services_text(answer_json(ServicesAnswer{std::move(services)})["services"]);
}

TEST(ServiceView, HasTheFiguresAgainstThePromise) {
  const std::string text = text_of({chat()});
  for (const char* part : {"chat", "vLLM", "3", "8 + 1 wait", "25 ms", "50 ms", "1 s", "0.10 %",
                           "0.05 %", "0.25", "itl p99 <= 50 ms kept"})
    EXPECT_TRUE(has(text, part)) << part << "\n" << text;
}

TEST(ServiceView, ABrokenPromiseAndTroubleAreSaid) {
  ServiceView view = chat();
  view.figures->late_ratio = 0.021;
  view.promise_state = "broken";
  view.trouble = "its metrics are 5 s old; its GPUs run at the highest clock";
  view.waiting = 4;
  view.gpus[0].governed = false;
  view.gpus[0].why = "it is governed for command";
  const std::string text = text_of({view});
  EXPECT_TRUE(has(text, "BROKEN: 2.1 % late, 0.05 % by the clock")) << text;
  EXPECT_TRUE(has(text, "8 + 4 wait")) << text;
  EXPECT_TRUE(has(text, "service chat: its metrics are 5 s old")) << text;
  EXPECT_TRUE(has(text, "service chat: GPU 3: it is governed for command")) << text;
}

TEST(ServiceView, WhatIsNotKnownIsNoFigure) {
  const std::string text = text_of({{.name = "chat",
                                     .metrics = "http://a/",
                                     .promise = {"itl p99 <= 50 ms"},
                                     .promise_state = "not known"}});
  EXPECT_TRUE(has(text, "not known")) << text;
  EXPECT_FALSE(has(text, "0.00")) << text;
  EXPECT_EQ(services_text(Json::array()), "");
  EXPECT_EQ(services_text(Json(7)), "");
}

}  // namespace
}  // namespace derate::cli
