#include "service/http/http_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

#include "base/percent.h"

namespace derate {
namespace {

constexpr HttpRequestParser::Limits kSmall{.head = 400, .body = 300, .fields = 20};

// What a server makes of bytes that come in these pieces.
struct Heard {
  std::vector<HttpRequest> requests;
  int fault = 0;

  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const HttpRequest& each : requests) {
      std::string text = fmt::format("{} {} {} {} {}", each.method, each.target, each.path,
                                     each.keep_alive, each.body);
      for (const auto& fields : {each.query, each.fields})
        for (const auto& [name, value] : fields) text += fmt::format("\n{}: {}", name, value);
      out.push_back(text);
    }
    return out;
  }
};

Heard heard(const std::vector<std::string>& pieces) {
  Heard out;
  HttpRequestParser parser(kSmall);
  for (std::string_view rest : pieces)
    while (!rest.empty() && out.fault == 0) {
      const std::size_t used = parser.put(rest);
      RC_ASSERT((used > 0 || parser.fault().has_value()));
      RC_ASSERT(parser.bytes() <= kSmall.head + kSmall.body + (5u << 10));
      rest.remove_prefix(used);
      if (parser.fault()) out.fault = parser.fault()->status;
      if (!parser.is_whole()) continue;
      out.requests.push_back(parser.request());
      parser = HttpRequestParser(kSmall);
    }
  return out;
}

std::vector<std::string> cut(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const auto size = *rc::gen::weightedOneOf<std::size_t>(
        {{3, rc::gen::inRange<std::size_t>(1, 4)}, {1, rc::gen::inRange<std::size_t>(1, 200)}});
    out.push_back(text.substr(at, size));
    at += size;
  }
  return out;
}

std::string any_text(const std::string& of, std::size_t most) {
  return *rc::gen::resize(static_cast<int>(most),
                          rc::gen::container<std::string>(rc::gen::elementOf(of)));
}

std::string chunked(std::string_view body) {
  std::string out;
  while (!body.empty()) {
    const auto size = std::min(body.size(), *rc::gen::inRange<std::size_t>(1, 20));
    out += fmt::format("{:x}\r\n{}\r\n", size, body.substr(0, size));
    body.remove_prefix(size);
  }
  return out + "0\r\n\r\n";
}

struct Sent {
  HttpRequest request;
  std::string text;
};

Sent any_request() {
  HttpRequest request;
  request.method = *rc::gen::element<std::string>("GET", "POST", "DELETE", "PATCH");
  request.path = "/" + any_text("abc/ %+?&=", 20);
  request.target = "/" + percent_encoded(request.path.substr(1));
  for (std::size_t i = *rc::gen::inRange<std::size_t>(0, 3); i > 0; --i) {
    request.query.emplace_back("k" + any_text("ab &=+%", 5), any_text("ab &=+%#\xc3\xa9", 9));
    request.target += request.query.size() == 1 ? "?" : "&";
    request.target += percent_encoded(request.query.back().first) + "=" +
                      percent_encoded(request.query.back().second);
  }
  request.fields = {{"Host", "x"}};
  if (*rc::gen::arbitrary<bool>()) request.fields.emplace_back("X-A", any_text("abc", 9));
  request.body = any_text("ab\r\n :%", 60);
  const bool chunks = *rc::gen::arbitrary<bool>();
  if (chunks)
    request.fields.emplace_back("Transfer-Encoding", "chunked");
  else if (!request.body.empty())
    request.fields.emplace_back("Content-Length", std::to_string(request.body.size()));
  std::string text = fmt::format("{} {} HTTP/1.1\r\n", request.method, request.target);
  for (const auto& [name, value] : request.fields) text += fmt::format("{}: {}\r\n", name, value);
  return {request, text + "\r\n" + (chunks ? chunked(request.body) : request.body)};
}

RC_GTEST_PROP(HttpRequestParser, GivesTheRequestsThatWereSentHoweverTheyAreCut, ()) {
  Heard sent;
  std::string text;
  for (int i = *rc::gen::inRange(1, 4); i > 0; --i) {
    const Sent each = any_request();
    sent.requests.push_back(each.request);
    text += each.text;
  }
  const Heard got = heard(cut(text));
  RC_ASSERT(got.fault == 0);
  RC_ASSERT(got.texts() == sent.texts());
}

// Bytes that are nearly requests: one that is one, with some bytes changed, lost or put in.
std::string any_bytes() {
  std::string text = any_request().text + any_request().text;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
    const std::string put = *rc::gen::oneOf(
        rc::gen::element<std::string>(
            "", "\r\n", "\n", "\r", " ", "\t", ":", "0", "%", "#", "..", "Content-Length: 3\r\n",
            "Host: y\r\n", "Transfer-Encoding: chunked\r\n", "HTTP/2.0", std::string(1, 0)),
        rc::gen::container<std::string>(rc::gen::arbitrary<char>()));
    text.replace(at, *rc::gen::inRange<std::size_t>(0, 3), put);
  }
  return text;
}

RC_GTEST_PROP(HttpRequestParser, MakesTheSameOfAnyBytesHoweverTheyAreCut, ()) {
  const std::string text = any_bytes();
  const Heard whole = heard({text}), pieces = heard(cut(text));
  RC_ASSERT(whole.texts() == pieces.texts());
  RC_ASSERT(whole.fault == pieces.fault);
}

// Of one request: its fault's status; 0: it is whole, 1: it is not.
int fault_of(const std::string& text) {
  HttpRequestParser parser(kSmall);
  parser.put(text);
  if (parser.fault()) return parser.fault()->status;
  return parser.is_whole() ? 0 : 1;
}

std::string get(const std::string& fields, const std::string& target = "/") {
  return "GET " + target + " HTTP/1.1\r\n" + fields + "\r\n";
}

TEST(HttpRequestParser, RefusesWhatServersDisagreeAbout) {
  const std::string host = "Host: x\r\n";
  EXPECT_EQ(fault_of(get(host)), 0);
  EXPECT_EQ(fault_of("\r\n\r\n" + get(host)), 0);
  EXPECT_EQ(fault_of("GET / HTTP/1.0\r\n\r\n"), 0);
  const std::string wrong[] = {
      get(""),
      get(host + host),
      get("Host: a b\r\n"),
      get("Host: a@b\r\n"),
      get("Host : x\r\n"),
      get(host + " folded: 1\r\n"),
      get("Host: x\r\n\tfolded\r\n"),
      get("Host: x\n"),
      "GET / HTTP/1.1\nHost: x\n\n",
      get(host + "A: \x01\r\n"),
      get(host + "A: b\rc\r\n"),
      get(host + "Content-Length: 1\r\nContent-Length: 1\r\n") + "a",
      get(host + "Content-Length: 1\r\nContent-Length: 2\r\n") + "ab",
      get(host + "Content-Length: 1, 1\r\n") + "a",
      get(host + "Content-Length: +1\r\n") + "a",
      get(host + "Content-Length: -1\r\n"),
      get(host + "Content-Length: 0x1\r\n") + "a",
      get(host + "Content-Length:\r\n"),
      get(host + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + "0\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n") + "0\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\n") + "g\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\n") + "1\r\nab\r\n0\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\n") + "1 \r\na\r\n0\r\n\r\n",
      get(host + "Transfer-Encoding: chunked\r\n") + "-1\r\na\r\n0\r\n\r\n",
      "GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET / FOO/1.1\r\n\r\n",
      "GET /\r\n\r\n",
      "G@T / HTTP/1.1\r\nHost: x\r\n\r\n",
      get(host, "x"),
      get(host, "*"),
      get(host, "http://x/"),
      get(host, "/a#b"),
      get(host, "/\xc3\xa9"),
      get(host, "/%"),
      get(host, "/%4"),
      get(host, "/%zz"),
      get(host, "/%00"),
      get(host, "/%0a"),
      get(host, "/%7f"),
      get(host, "/../a"),
      get(host, "/a/.."),
      get(host, "/a/%2e%2E/b"),
      get(host, "/a/./b"),
      get(host, "/a/%2e%2e%2fb"),
      get(host, "/?a=%"),
      get(host, "/?%00=1"),
      get(host, "/a b"),
  };
  for (const std::string& each : wrong) EXPECT_EQ(fault_of(each), 400) << each;
}

TEST(HttpRequestParser, TellsWhatIsTooMuchAndWhatIsNotOffered) {
  const std::string host = "Host: x\r\n";
  EXPECT_EQ(fault_of(get(host, "/" + std::string(500, 'a'))), 414);
  EXPECT_EQ(fault_of(std::string(401, 'a')), 414);
  EXPECT_EQ(fault_of(get(host + "A: " + std::string(400, 'a') + "\r\n")), 431);
  std::string many = host;
  for (int i = 0; i < 21; ++i) many += "a: b\r\n";
  EXPECT_EQ(fault_of(get(many)), 431);
  EXPECT_EQ(fault_of(get(host + "Content-Length: 301\r\n")), 413);
  EXPECT_EQ(fault_of(get(host + "Content-Length: 300\r\n")), 1);
  EXPECT_EQ(fault_of(get(host + "Content-Length: 18446744073709551615\r\n")), 413);
  EXPECT_EQ(fault_of(get(host + "Content-Length: 18446744073709551616\r\n")), 400);
  const std::string chunks = host + "Transfer-Encoding: chunked\r\n";
  EXPECT_EQ(fault_of(get(chunks) + "12d\r\n"), 413);
  EXPECT_EQ(fault_of(get(chunks) + "c8\r\n" + std::string(200, 'a') + "\r\nc8\r\n"), 413);
  EXPECT_EQ(fault_of(get(chunks) + "1;" + std::string(5000, 'a')), 413);
  EXPECT_EQ(fault_of(get(chunks) + "ffffffffffffffff\r\n"), 413);
  EXPECT_EQ(fault_of(get(host + "Transfer-Encoding: gzip, chunked\r\n") + "0\r\n\r\n"), 501);
  EXPECT_EQ(fault_of(get(host + "Transfer-Encoding: chunked, chunked\r\n") + "0\r\n\r\n"), 501);
  EXPECT_EQ(fault_of(get(host + "Expect: tea\r\n")), 417);
  EXPECT_EQ(fault_of("GET / HTTP/2.0\r\nHost: x\r\n\r\n"), 505);
  EXPECT_EQ(fault_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(fault_of("GET / HTTP/1.2\r\nHost: x\r\n\r\n"), 505);
}

// The kind of load is told by the head, before the body has come.
TEST(HttpRequestParser, TheHeadIsThereBeforeTheBody) {
  HttpRequestParser parser(kSmall);
  EXPECT_FALSE(parser.has_begun());
  parser.put("POST /v1/a?x=1 HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2");
  EXPECT_TRUE(parser.has_begun());
  EXPECT_FALSE(parser.has_head());
  EXPECT_EQ(parser.put("\r\n\r\n"), 4u);
  ASSERT_TRUE(parser.has_head());
  EXPECT_TRUE(parser.waits_for_continue());
  EXPECT_EQ(parser.request().path, "/v1/a");
  EXPECT_EQ(find_field(parser.request().query, "x"), "1");
  EXPECT_EQ(find_field(parser.request().fields, "HOST"), "x");
  EXPECT_EQ(parser.put("a"), 1u);
  EXPECT_FALSE(parser.waits_for_continue());
  EXPECT_FALSE(parser.is_whole());
  EXPECT_EQ(parser.put("bGET"), 1u);
  EXPECT_TRUE(parser.is_whole());
  EXPECT_EQ(parser.request().body, "ab");
  EXPECT_EQ(parser.put("GET"), 0u);
}

TEST(HttpRequestParser, KnowsWhoseConnectionGoesOn) {
  const auto goes_on = [](const std::string& text) {
    HttpRequestParser parser(kSmall);
    parser.put(text);
    return parser.request().keep_alive;
  };
  EXPECT_TRUE(goes_on("GET / HTTP/1.1\r\nHost: x\r\n\r\n"));
  EXPECT_FALSE(goes_on("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(goes_on("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(goes_on("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

// What comes after the last chunk is no field of the head.
TEST(HttpRequestParser, TrailersAreNoFields) {
  HttpRequestParser parser(kSmall);
  const std::string text =
      get("Host: x\r\nTransfer-Encoding: chunked\r\n") + "1\r\na\r\n0\r\nX-Role: admin\r\n\r\n";
  EXPECT_EQ(parser.put(text + "G"), text.size());
  ASSERT_TRUE(parser.is_whole());
  EXPECT_EQ(find_field(parser.request().fields, "X-Role"), std::nullopt);
}

// --- responses -----------------------------------------------------------------------------------

struct Answer {
  HttpResponse head;
  std::string body, fault;
  bool whole = false;
};

Answer answer_in(const std::vector<std::string>& pieces, bool is_head = false) {
  Answer out;
  HttpResponseParser parser(is_head);
  for (const std::string& piece : pieces) {
    parser.put(piece);
    out.body += parser.take_body();
  }
  parser.put_end();
  out.body += parser.take_body();
  out.head = parser.head();
  out.fault = parser.fault();
  out.whole = parser.is_whole();
  return out;
}

RC_GTEST_PROP(HttpResponseParser, GivesTheAnswerHoweverItIsCut, ()) {
  const std::string body = any_text("ab\r\n0", 100);
  const auto kind = *rc::gen::inRange(0, 3);
  const std::string interim = *rc::gen::arbitrary<bool>() ? "HTTP/1.1 100 Continue\r\n\r\n" : "";
  const std::string head = interim + "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n";
  const std::string text =
      kind == 0   ? head + fmt::format("Content-Length: {}\r\n\r\n", body.size()) + body
      : kind == 1 ? head + "Transfer-Encoding: chunked\r\n\r\n" + chunked(body)
                  : head + "\r\n" + body;
  const Answer got = answer_in(cut(text));
  RC_ASSERT(got.fault == "");
  RC_ASSERT(got.whole);
  RC_ASSERT(got.head.status == 404);
  RC_ASSERT(got.head.content_type == "text/plain");
  RC_ASSERT(got.body == body);
}

RC_GTEST_PROP(HttpResponseParser, TakesAnyBytes, ()) {
  std::string text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked("abcdef");
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i)
    text.replace(*rc::gen::inRange<std::size_t>(0, text.size()), 1,
                 *rc::gen::container<std::string>(rc::gen::arbitrary<char>()));
  const Answer whole = answer_in({text}), pieces = answer_in(cut(text));
  RC_ASSERT(whole.whole == pieces.whole);
  RC_ASSERT(whole.body == pieces.body);
}

TEST(HttpResponseParser, TheAnswerToHeadHasNoBodyAndOneThatIsCutShortIsWrong) {
  EXPECT_TRUE(answer_in({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"}, true).whole);
  EXPECT_FALSE(answer_in({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}).whole);
  EXPECT_NE(answer_in({"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}).fault, "");
  EXPECT_NE(answer_in({"HTTP/1.1 200"}).fault, "");
  EXPECT_NE(answer_in({""}).fault, "");
  EXPECT_NE(answer_in({"SSH-2.0-OpenSSH_9\r\n"}).fault, "");
}

}  // namespace
}  // namespace derate
