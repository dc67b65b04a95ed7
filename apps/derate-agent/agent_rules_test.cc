#include "agent_rules.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "service/http/http_server.h"

namespace derate::agent {
namespace {

HttpRequest request(std::string method, std::string target, HttpFields fields = {},
                    std::string body = "") {
  HttpRequest out;
  out.method = std::move(method);
  out.target = std::move(target);
  out.fields = std::move(fields);
  if (!find_field(out.fields, "Host")) out.fields.emplace_back("Host", "127.0.0.1:9410");
  out.body = std::move(body);
  return out;
}

int status_of(const HttpRequest& asked, const AgentRules& rules = {}) {
  const Verdict verdict = judge(asked, rules);
  const auto* refused = std::get_if<HttpResponse>(&verdict);
  return refused != nullptr ? refused->status : 0;  // 0: passed
}

const std::pair<std::string, std::string> kToken{"Authorization", "Bearer abc.DEF-123_~+/=="};

const std::pair<std::string, std::string> kEvents{"Accept", "text/event-stream"};

std::string any_of(const std::vector<std::string>& choices) { return *rc::gen::elementOf(choices); }

bool once_in(std::size_t times) {
  return *rc::gen::weightedElement<bool>({{1, true}, {times - 1, false}});
}

HttpFields any_fields() {
  HttpFields out{{"Host", any_of({"localhost", "127.0.0.1:9410"})}};
  if (once_in(16)) out.front().second = any_of({"evil.example", "localhost:x", ""});
  if (!once_in(4)) out.emplace_back(any_of({"Authorization", "authorization"}), "Bearer abc");
  if (once_in(8)) out.emplace_back("Origin", any_of({"http://localhost", "null", "http://a"}));
  // Each once: some may not come twice.
  for (const char* name : {"Accept", "Content-Type", "Last-Event-ID", "Cookie", "Connection",
                           "X-Forwarded-For", "X-Derate-Role", "Transfer-Encoding"})
    if (once_in(3)) out.emplace_back(name, any_of({"7", "text/plain", "text/event-stream"}));
  if (once_in(16))
    out.emplace_back(any_of({"Authorization", "Host", "Accept", "X"}),
                     *rc::gen::arbitrary<std::string>());
  return out;
}

// Near what is allowed, where the mistakes are.
HttpRequest any_request() {
  std::string target =
      any_of({"/", "/metrics", "/livez", "/readyz", "/v1/gpus", "/v1/policy-set", "/v1/events"});
  if (once_in(8))
    target = any_of({"/v1/", "/V1/gpus", "//v1/gpus", "v1/gpus", "/v1//gpus", "/v1", "/metricsx",
                     "/metrics/../v1/gpus", "/v1/events/"});
  if (once_in(8)) target += any_of({"?", "?a=b", "?a=%20", "?a=%2", "#f", "%00"});
  if (once_in(16))
    target.insert(*rc::gen::inRange<std::size_t>(0, target.size() + 1), 1,
                  *rc::gen::arbitrary<char>());
  std::string method = any_of({"GET", "GET", "HEAD", "POST"});
  if (once_in(16)) method = any_of({"PUT", "DELETE", "OPTIONS", "get", "TRACE"});
  return request(method, target, any_fields(), once_in(method == "POST" ? 2 : 16) ? "{}" : "");
}

// The caller may have a token, and use any name of this machine.
RC_GTEST_PROP(AgentRules, ForMetricsOnlyNothingElseIsThere, ()) {
  const HttpRequest asked = any_request();
  const AgentRules rules{.metrics_only = true};
  const Verdict verdict = judge(asked, rules);
  if (const auto* passed = std::get_if<Passed>(&verdict)) {
    RC_ASSERT(passed->duty == Duty::page);
    RC_ASSERT(asked.method == "GET" || asked.method == "HEAD");
    for (const auto& [name, value] : passed->ask.fields) RC_ASSERT(name == "Accept");
  }
}

TEST(AgentRules, ForMetricsOnlyAnyHostIsServedAndOperationsAreNotFound) {
  const AgentRules rules{.metrics_only = true};
  for (const char* const page : {"/metrics", "/livez", "/readyz"}) {
    EXPECT_EQ(status_of(request("GET", page, {{"Host", "10.1.2.3:9410"}}), rules), 0) << page;
    EXPECT_EQ(status_of(request("HEAD", page, {{"Host", "gpu7"}}), rules), 0) << page;
    EXPECT_EQ(status_of(request("POST", page), rules), 404) << page;
  }
  for (const char* const other : {"/", "/ui", "/ui/session", "/v1/gpus", "/v1/events", "/metrics/"})
    EXPECT_EQ(status_of(request("GET", other, {kToken}), rules), 404) << other;
  EXPECT_EQ(status_of(request("GET", "/metrics?x=1"), rules), 400);
}

RC_GTEST_PROP(AgentRules, WithoutATokenOnlyPagesAreRead, ()) {
  HttpRequest asked = any_request();
  std::erase_if(asked.fields,
                [](const auto& field) { return to_lower(field.first) == "authorization"; });
  const Verdict verdict = judge(asked, {});
  if (const auto* passed = std::get_if<Passed>(&verdict)) {
    RC_ASSERT(passed->duty == Duty::page || passed->duty == Duty::own_text);
    RC_ASSERT(asked.method == "GET" || asked.method == "HEAD");
  }
}

// Whatever came, and however it was written.
RC_GTEST_PROP(AgentRules, WhatIsPassedOnIsAllThatIsAllowed, ()) {
  const HttpRequest asked = any_request();
  const Verdict verdict = judge(asked, {});
  const auto* passed = std::get_if<Passed>(&verdict);
  if (passed == nullptr || passed->duty == Duty::own_text) return;
  RC_ASSERT(passed->duty == duty_of(asked));
  RC_ASSERT(passed->ask.method == "GET" || passed->ask.method == "POST");
  for (const auto& [name, value] : passed->ask.fields) {
    RC_ASSERT(name == "Accept" || name == "Authorization" || name == "Content-Type" ||
              name == "Last-Event-ID");
    RC_ASSERT(value.find_first_of("\r\n") == std::string::npos);
  }
  RC_ASSERT(passed->ask.target.find_first_of(std::string("\r\n \0", 4)) == std::string::npos);
  RC_ASSERT(passed->ask.target.find("//") == std::string::npos ||
            passed->ask.target.find("//") > passed->ask.target.find('?'));
  if (passed->duty != Duty::page) {
    RC_ASSERT(passed->ask.target.starts_with("/v1"));
    RC_ASSERT(find_field(passed->ask.fields, "Authorization") ==
              find_field(asked.fields, "Authorization"));
  } else {
    RC_ASSERT(!find_field(passed->ask.fields, "Authorization"));
    RC_ASSERT(passed->ask.method == "GET" && passed->ask.body.empty());
  }
}

RC_GTEST_PROP(AgentRules, AnOtherNameOrOriginIsRefused, ()) {
  HttpRequest asked = any_request();
  const auto host = find_field(asked.fields, "Host");
  const auto origin = find_field(asked.fields, "Origin");
  const bool ours = host == "localhost" || host == "127.0.0.1:9410";
  const bool same = !origin || (origin == "http://localhost" && host == "localhost");
  if (!ours || !same) RC_ASSERT(status_of(asked) >= 400);
}

RC_GTEST_PROP(AgentRules, AnswersCarryNothingButWhatIsNamed, ()) {
  HttpResponse from;
  for (int i = *rc::gen::element(1, 3, 6); i > 0; --i)
    from.fields.emplace_back(any_of({"Set-Cookie", "Access-Control-Allow-Origin", "Retry-After",
                                     "Allow", "X-Any", "Cache-Control"}),
                             "x");
  const HttpResponse out = answer_of(from);
  for (const auto& [name, value] : out.fields)
    RC_ASSERT(name == "Retry-After" || name == "Allow" || name == "Cache-Control" ||
              name == "X-Content-Type-Options");
  RC_ASSERT(find_field(out.fields, "Cache-Control") == "no-store");
}

// derated would refuse a longer head before it looks at the token.
TEST(AgentRules, AHeadThatDoesNotFitDeratedIsRefusedHere) {
  const std::size_t most = HttpServerOptions{}.most_head_bytes;
  int passed = 0, refused = 0;
  for (std::size_t length = most - 400; length < most + 10; ++length) {
    const Verdict verdict = judge(request("GET", "/v1/gpus?gpus=" + std::string(length, 'a'),
                                          {{"Host", "localhost"}, kToken}),
                                  {});
    if (const auto* const response = std::get_if<HttpResponse>(&verdict)) {
      EXPECT_EQ(response->status, 431);
      ++refused;
    } else {
      EXPECT_LE(head_bytes(std::get<Passed>(verdict).ask), most);
      EXPECT_EQ(refused, 0);
      ++passed;
    }
  }
  EXPECT_GT(passed, 0);
  EXPECT_GT(refused, 0);
}

struct Row {
  const char *method, *target;
  HttpFields fields;
  const char* body;
  int status;  // 0: passed on
};

TEST(AgentRules, Table) {
  const Row rows[] = {
      {"GET", "/", {}, "", 0},
      {"GET", "/metrics", {}, "", 0},
      {"HEAD", "/readyz", {}, "", 0},
      {"GET", "/metrics?a=b", {}, "", 400},
      {"GET", "/metrics", {}, "x", 400},
      {"POST", "/metrics", {kToken}, "", 405},
      {"GET", "/metrics/", {}, "", 400},
      {"GET", "/nothing", {}, "", 404},
      {"GET", "/v1/gpus", {}, "", 401},
      {"GET", "/v1/gpus", {{"Authorization", "Basic abc"}}, "", 401},
      {"GET", "/v1/gpus", {{"Authorization", "Bearer a b"}}, "", 401},
      {"GET", "/v1/gpus", {{"Authorization", "Bearer =="}}, "", 401},
      {"GET", "/v1/gpus", {{"Authorization", "Bearer " + std::string(513, 'a')}}, "", 401},
      {"GET", "/v1/gpus", {kToken}, "", 0},
      {"GET", "/v1/gpus?gpus=0,1&at=%2d1h", {kToken}, "", 0},
      {"GET", "/v1/gpus?gpus=%zz", {kToken}, "", 400},
      {"GET", "/v1/gpus?gpus=%2", {kToken}, "", 400},
      {"GET", "/v1/gpus", {kToken, kToken}, "", 400},
      {"GET", "/v1/gpus", {kToken}, "{}", 400},
      {"POST", "/v1/policy-set", {kToken}, "{}", 0},
      {"PUT", "/v1/policy-set", {kToken}, "{}", 405},
      {"OPTIONS", "/v1/policy-set", {{"Origin", "http://127.0.0.1:9410"}}, "", 405},
      {"GET", "/v1", {kToken}, "", 0},
      {"GET", "/v1", {}, "", 401},
      {"GET", "/v11", {kToken}, "", 404},
      {"GET", "/v1/events", {kToken}, "", 0},
      {"GET", "/v1/events", {kToken, kEvents}, "", 0},
      {"HEAD", "/v1/events", {kToken, kEvents}, "", 405},
      {"GET", "/v1/../metrics", {kToken}, "", 400},
      {"GET", "/%76%31/gpus", {kToken}, "", 400},
      {"GET", "http://127.0.0.1/metrics", {}, "", 400},
      {"GET", "*", {}, "", 400},
      {"GET", "/metrics", {{"Accept", "a\nb"}}, "", 400},
      {"GET", "/metrics", {{"Accept", std::string(1025, 'a')}}, "", 400},
  };
  for (const Row& row : rows)
    EXPECT_EQ(status_of(request(row.method, row.target, row.fields, row.body)), row.status)
        << row.method << " " << row.target;
}

TEST(AgentRules, HostsAndOrigins) {
  struct Place {
    const char *host, *origin;
    int status;
  };
  const Place places[] = {
      {"localhost", "", 0},
      {"LocalHost:80", "", 0},
      {"[::1]:9410", "", 0},
      {"gpu7.example:9410", "", 0},
      {"evil.example", "", 421},
      {"localhost.evil.example", "", 421},
      {"127.0.0.1.evil.example", "", 421},
      {"0.0.0.0", "", 421},
      {"localhost:99999", "", 400},
      {"localhost:", "", 400},
      {"local host", "", 400},
      {"[::1", "", 400},
      {"[::1]9410", "", 400},
      {"user@localhost", "", 400},
      {"localhost:9410", "http://localhost:9410", 0},
      {"localhost", "http://localhost:80", 0},
      {"gpu7.example", "https://gpu7.example", 0},
      {"localhost:9410", "http://localhost", 403},
      {"localhost:9410", "http://localhost:3000", 403},
      {"localhost:9410", "http://evil.example", 403},
      {"localhost:9410", "null", 403},
      {"localhost", "file://localhost", 403},
      {"localhost", "localhost", 403},
  };
  for (const Place& place : places) {
    HttpFields fields{{"Host", place.host}};
    if (*place.origin != '\0') fields.emplace_back("Origin", place.origin);
    EXPECT_EQ(status_of(request("GET", "/metrics", fields), {.hosts = {"gpu7.example"}}),
              place.status)
        << place.host << " " << place.origin;
  }
  HttpRequest none = request("GET", "/metrics");
  none.fields.clear();
  EXPECT_EQ(status_of(none), 400);
  EXPECT_EQ(status_of(request("GET", "/metrics", {{"Host", "localhost"}, {"host", "localhost"}})),
            400);
}

TEST(AgentRules, MetricsAreOneOfTwoTexts) {
  const auto accepted = [](const char* accept) {
    const Verdict verdict = judge(request("GET", "/metrics", {{"Accept", accept}}), {});
    return *find_field(std::get<Passed>(verdict).ask.fields, "accept");
  };
  EXPECT_EQ(accepted("text/plain"), "text/plain;version=0.0.4");
  EXPECT_EQ(accepted("*/*"), "text/plain;version=0.0.4");
  EXPECT_EQ(accepted("application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1"),
            "application/openmetrics-text;version=1.0.0");
}

TEST(AgentRules, ARefusalSaysWhyAndEndsTheConnection) {
  const auto refused = std::get<HttpResponse>(judge(request("PUT", "/v1/gpus", {kToken}), {}));
  EXPECT_EQ(find_field(refused.fields, "Allow"), "GET, HEAD, POST");
  EXPECT_TRUE(refused.close);
  const auto no_token = std::get<HttpResponse>(judge(request("GET", "/v1/gpus"), {}));
  EXPECT_EQ(find_field(no_token.fields, "WWW-Authenticate"), "Bearer realm=\"derate\"");
  EXPECT_NE(no_token.body.find("token"), std::string::npos);
}

TEST(AgentRules, ThePageIsThereForWhoStartedItForThePage) {
  EXPECT_EQ(status_of(request("GET", "/ui")), 404);
  EXPECT_EQ(status_of(request("POST", "/ui/session", {{"Origin", "http://127.0.0.1:9410"}}, "x")),
            404);
  const AgentRules page{.page = true};
  EXPECT_EQ(status_of(request("GET", "/ui"), page), 0);
  EXPECT_EQ(status_of(request("POST", "/ui"), page), 405);
  EXPECT_EQ(status_of(request("GET", "/ui?x=1"), page), 400);
  EXPECT_EQ(status_of(request("GET", "/ui", {{"Host", "evil.example"}}), page), 421);
  const auto session = [&](const char* origin, const std::string& body) {
    HttpFields fields;
    if (*origin != '\0') fields.emplace_back("Origin", origin);
    return status_of(request("POST", "/ui/session", fields, body), page);
  };
  EXPECT_EQ(session("http://127.0.0.1:9410", "code"), 0);
  EXPECT_EQ(session("http://evil.example", "code"), 403);
  EXPECT_EQ(session("", "code"), 403);
  EXPECT_EQ(session("http://127.0.0.1:9410", std::string(257, 'x')), 413);
}

// One file without a network: what it may load is its own script and style, by their hashes.
TEST(AgentRules, ThePageLoadsNothing) {
  const HttpResponse page = own_page();
  EXPECT_EQ(page.content_type, "text/html; charset=utf-8");
  const std::string policy = *find_field(page.fields, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'sha256-")) << policy;
  for (const char* loose : {"unsafe", "*", "http", "data: "})
    EXPECT_EQ(policy.find(loose), std::string::npos) << policy;
  EXPECT_NE(policy.find("frame-ancestors 'none'"), std::string::npos);
  for (const char* outside : {"src=\"http", "href=\"http", "url(http", "@import", "src=\"/"})
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
  EXPECT_LT(page.body.size(), 400'000u);
  EXPECT_EQ(find_field(page.fields, "Cache-Control"), "no-store");
}

}  // namespace
}  // namespace derate::agent
