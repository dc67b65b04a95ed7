#include "service/http/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <exception>
#include <limits>
#include <utility>
#include <vector>

#include "base/percent.h"
#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

namespace http = boost::beast::http;
using BeastError = boost::beast::error_code;

// Of a chunked body: the sizes, extensions and trailers beside it cost no more than this.
constexpr std::size_t kMostRawPerByte = 8;
constexpr std::size_t kMostChunkHead = 4 << 10;

bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// Empty, too, where a control character comes out.
std::optional<std::string> plain_text(std::string_view text) {
  auto out = percent_decoded(text);
  if (out && std::any_of(out->begin(), out->end(), is_control)) return std::nullopt;
  return out;
}

std::optional<std::string> query_text(std::string_view text) {
  std::string blanks(text);
  std::replace(blanks.begin(), blanks.end(), '+', ' ');
  return plain_text(blanks);
}

HttpFault bad(std::string message) { return {400, std::move(message)}; }

std::optional<HttpFault> split_query(std::string_view text, HttpFields& query) {
  for (const std::string_view part : split(text, '&')) {
    if (part.empty()) continue;
    const std::size_t at = std::min(part.find('='), part.size());
    auto name = query_text(part.substr(0, at));
    auto value = query_text(part.substr(std::min(at + 1, part.size())));
    if (!name || !value)
      return bad(fmt::format("the query's part '{}' has a wrong escape or a control character",
                             log_text(part, 100)));
    query.emplace_back(*std::move(name), *std::move(value));
  }
  return std::nullopt;
}

// What Beast says, as the answer's status. Its own words are for who knows its source.
HttpFault fault_of(const BeastError& error, const HttpRequestParser::Limits& limits) {
  if (error == http::error::bad_version) return bad("the request line is malformed");
  if (error == http::error::body_limit)
    return {413, fmt::format("a body has at most {} bytes", limits.body)};
  if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension)
    return bad("a chunk of the body is malformed");
  if (error == http::error::bad_method) return bad("the method is malformed");
  if (error == http::error::bad_target) return bad("the target is malformed");
  if (error == http::error::bad_content_length) return bad("Content-Length is malformed");
  return bad("a field of the head is malformed");
}

// "HTTP/2.0" and the like at the end of the first line; no words that are no version.
bool names_a_version(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\r'));
  const std::string_view word = line.substr(std::min(line.rfind(' ') + 1, line.size()));
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return std::count(line.begin(), line.end(), ' ') == 2 && word.size() == 8 &&
         word.starts_with("HTTP/") && word[6] == '.' && is_digit(word[5]) && is_digit(word[7]);
}

// Which of the names of a head has more than one field, of which servers take the first or the
// last; empty: none.
std::string_view named_twice(const HttpFields& fields) {
  for (const std::string_view name : {"Host", "Content-Length", "Transfer-Encoding", "Expect"}) {
    const auto first = std::find_if(fields.begin(), fields.end(), [&](const auto& field) {
      return to_lower(field.first) == to_lower(name);
    });
    if (first != fields.end() && find_field(HttpFields(first + 1, fields.end()), name).has_value())
      return name;
  }
  return "";
}

// What Beast takes and others take for something else.
std::optional<HttpFault> check_fields(const HttpRequest& head, unsigned version) {
  if (const auto twice = named_twice(head.fields); !twice.empty())
    return bad(fmt::format("{} comes twice", twice));
  const auto host = find_field(head.fields, "Host");
  if (!host && version >= 11) return bad("Host is missing");
  if (host && host->find_first_of(" \t,/@") != std::string::npos) return bad("Host is malformed");
  const auto length = find_field(head.fields, "Content-Length");
  if (length && (length->empty() || length->find_first_not_of("0123456789") != std::string::npos))
    return bad("Content-Length is malformed");
  const auto coding = find_field(head.fields, "Transfer-Encoding");
  if (coding && (length || version < 11))
    return bad("Transfer-Encoding goes with HTTP/1.1, without Content-Length");
  if (coding && to_lower(*coding) != "chunked")
    return HttpFault{501, "the only Transfer-Encoding that is understood is chunked"};
  const auto expects = find_field(head.fields, "Expect");
  if (expects && to_lower(*expects) != "100-continue")
    return HttpFault{417, "the only Expect that is understood is 100-continue"};
  return std::nullopt;
}

HttpFields fields_of(const http::fields& fields) {
  HttpFields out;
  for (const auto& field : fields)
    out.emplace_back(std::string(field.name_string()), std::string(field.value()));
  return out;
}

// "/a%20b?c=d+e" as the path "/a b" and the query c: "d e" (a '+' of a query is a blank, as forms
// send it). Refused, with 400: what is not a path, escapes that are none, control characters and
// segments "." and "..", escaped or not.
std::optional<HttpFault> split_target(std::string_view target, std::string& path,
                                      HttpFields& query) {
  if (target == "*") return path = "*", std::nullopt;
  if (!target.starts_with('/')) return bad("the target does not begin with '/'");
  const auto is_odd = [](char c) { return is_control(c) || c == '#' || (c & 0x80) != 0; };
  if (std::any_of(target.begin(), target.end(), is_odd))
    return bad("the target has a character that has to be escaped");
  const std::size_t at = std::min(target.find('?'), target.size());
  auto decoded = plain_text(target.substr(0, at));
  if (!decoded) return bad("the path has a wrong escape or a control character");
  for (const std::string_view segment : split(*decoded, '/'))
    if (segment == "." || segment == "..") return bad("the path has a segment '.' or '..'");
  path = *std::move(decoded);
  return split_query(target.substr(std::min(at + 1, target.size())), query);
}

}  // namespace

// A parser of Beast's. It throws where a field is longer than it can note, and asserts where it
// gets less of a first chunk than the least that a chunked body has: "0\r\n\r\n".
template <class Parser>
struct BeastFeed {
  static constexpr std::size_t kLeastChunks = 5;

  Parser parser = {};
  bool has_body = false;  // some of it

  // Gives it what it takes of `bytes` in one go; how many.
  std::size_t put(std::string_view bytes, BeastError& error) {
    const bool in_body = parser.is_header_done();
    if (in_body && !has_body && parser.chunked() && bytes.size() < kLeastChunks) {
      error = http::error::need_more;
      return 0;
    }
    try {
      const std::size_t taken =
          parser.put(boost::asio::const_buffer(bytes.data(), bytes.size()), error);
      has_body = has_body || (in_body && taken > 0);
      return taken;
    } catch (const std::exception&) {
      error = http::error::bad_field;
      return 0;
    }
  }
  // All that it takes; what it leaves is to be given again with what comes next.
  std::string_view feed(std::string_view bytes, BeastError& error) {
    while (!bytes.empty() && !parser.is_done() && !error) bytes.remove_prefix(put(bytes, error));
    return bytes;
  }
};

// --- requests ------------------------------------------------------------------------------------

struct HttpRequestParser::State {
  using Feed = BeastFeed<http::request_parser<http::string_body>>;

  Limits limits;
  std::string pending;      // the head as far as it has come; then what Beast has left of the body
  std::size_t scanned = 0;  // of the head
  std::size_t raw = 0;      // of the body
  bool awaits_body = false;
  std::optional<Feed> beast;  // from the whole head on
  HttpRequest request;
  bool is_1_0 = false;
  std::optional<HttpFault> fault;
  bool whole = false;

  bool find_head_end();
  void parse_head();
  std::optional<HttpFault> take_head();
  std::size_t put_body(std::string_view bytes);
  void finish();
};

// True with the blank line in `pending` up to `scanned`. Lines end with CR LF: who takes a LF alone
// for an end sees other fields.
bool HttpRequestParser::State::find_head_end() {
  while (scanned < pending.size()) {
    const std::size_t end = pending.find('\n', scanned);
    if (end == std::string::npos) return scanned = pending.size(), false;
    scanned = end + 1;
    if (end == 0 || pending[end - 1] != '\r') {
      fault = bad("a line of the head does not end with CR LF");
      return false;
    }
    if (end == 1) {  // an empty line before the request, as some clients send it
      pending.erase(0, 2);
      scanned = 0;
      continue;
    }
    if (pending[end - 2] == '\n') return true;
  }
  return false;
}

void HttpRequestParser::State::parse_head() {
  for (std::size_t at = 0; (at = pending.find('\n', at)) != std::string::npos; ++at)
    if (at + 1 < pending.size() && (pending[at + 1] == ' ' || pending[at + 1] == '\t')) {
      fault = bad("a field of the head goes on in the next line");
      return;
    }
  const auto lines = static_cast<std::size_t>(std::count(pending.begin(), pending.end(), '\n'));
  if (lines > limits.fields + 2) {
    fault = {431, fmt::format("a head has at most {} fields", limits.fields)};
    return;
  }
  beast.emplace();
  beast->parser.header_limit(static_cast<std::uint32_t>(pending.size() + 1));
  beast->parser.body_limit(limits.body);
  BeastError error;
  const auto left = beast->feed(pending, error);
  if (error == http::error::bad_version && names_a_version(pending)) {
    fault = {505, "the request's version is not HTTP/1.1 or HTTP/1.0"};
  } else if (error && error != http::error::need_more) {
    fault = fault_of(error, limits);
  } else if (!beast->parser.is_header_done() || !left.empty()) {
    fault = bad("the head is malformed");
  } else {
    fault = take_head();
  }
  pending = {};
}

std::optional<HttpFault> HttpRequestParser::State::take_head() {
  const auto& head = beast->parser.get();
  request.method = std::string(head.method_string());
  request.target = std::string(head.target());
  request.fields = fields_of(head);
  request.keep_alive = head.keep_alive();
  is_1_0 = head.version() < 11;
  if (auto wrong = check_fields(request, head.version())) return wrong;
  if (auto wrong = split_target(request.target, request.path, request.query)) return wrong;
  if (request.path == "*" && request.method != "OPTIONS") return bad("the target is no path");
  const auto length = beast->parser.content_length();
  if (length && *length > limits.body)
    return HttpFault{413, fmt::format("a body has at most {} bytes", limits.body)};
  awaits_body = !beast->parser.is_done();
  if (!awaits_body) finish();
  return std::nullopt;
}

void HttpRequestParser::State::finish() {
  request.body = std::move(beast->parser.get().body());
  beast.reset();
  whole = true;
}

std::size_t HttpRequestParser::State::put_body(std::string_view bytes) {
  raw += bytes.size();
  if (!pending.empty()) pending += bytes;
  BeastError error;
  const std::string_view left = beast->feed(pending.empty() ? bytes : pending, error);
  const std::size_t used = bytes.size() - left.size();
  if (beast->parser.is_done()) return pending = {}, finish(), used;
  if (error && error != http::error::need_more) fault = fault_of(error, limits);
  pending = std::string(left);
  if (!fault && (pending.size() > kMostChunkHead || raw > kMostRawPerByte * limits.body))
    fault = {413, "the chunks' heads are too large"};
  return bytes.size();
}

HttpRequestParser::HttpRequestParser(const Limits& limits) : state_(std::make_unique<State>()) {
  state_->limits = limits;
}
HttpRequestParser::HttpRequestParser(HttpRequestParser&&) noexcept = default;
HttpRequestParser& HttpRequestParser::operator=(HttpRequestParser&&) noexcept = default;
HttpRequestParser::~HttpRequestParser() = default;

std::size_t HttpRequestParser::put(std::string_view bytes) {
  State& s = *state_;
  std::size_t used = 0;
  while (used < bytes.size() && !s.whole && !s.fault) {
    if (s.beast) return used + s.put_body(bytes.substr(used));
    const std::size_t before = s.pending.size();
    const std::string_view more =
        bytes.substr(used, s.limits.head + 1 - std::min(before, s.limits.head));
    s.pending += more;
    used += more.size();
    if (s.find_head_end()) {
      used -= s.pending.size() - s.scanned;
      s.pending.resize(s.scanned);
      s.parse_head();
    } else if (!s.fault && s.pending.size() > s.limits.head) {
      const bool line = s.pending.find('\n') == std::string::npos;
      s.fault = {line ? 414 : 431, fmt::format("a head has at most {} bytes", s.limits.head)};
    }
  }
  return used;
}

bool HttpRequestParser::has_begun() const { return !state_->pending.empty() || has_head(); }
bool HttpRequestParser::has_head() const { return !state_->request.method.empty(); }
bool HttpRequestParser::is_whole() const { return state_->whole; }
bool HttpRequestParser::waits_for_continue() const {
  return state_->awaits_body && !state_->whole && state_->raw == 0 &&
         find_field(state_->request.fields, "Expect").has_value();
}
const std::optional<HttpFault>& HttpRequestParser::fault() const { return state_->fault; }
const HttpRequest& HttpRequestParser::request() const { return state_->request; }
bool HttpRequestParser::is_1_0() const { return state_->is_1_0; }
std::size_t HttpRequestParser::bytes() const {
  const State& s = *state_;
  return s.pending.size() + (s.beast ? s.beast->parser.get().body().size() : s.request.body.size());
}

// --- responses -----------------------------------------------------------------------------------

struct HttpResponseParser::State {
  using Feed = BeastFeed<http::response_parser<http::string_body>>;
  static constexpr std::uint32_t kMostHead = 64 << 10;

  explicit State(bool skips) : is_head(skips) { begin(); }
  void begin();
  void take(const BeastError& error);

  bool is_head;
  std::optional<Feed> beast;
  std::string pending;  // what Beast has left
  HttpResponse response;
  bool has_head = false, whole = false;
  std::string fault;
};

void HttpResponseParser::State::begin() {
  beast.emplace();
  beast->parser.header_limit(kMostHead);
  // Not none, which Beast 1.74 takes for less than any length.
  beast->parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  beast->parser.skip(is_head);
  beast->parser.eager(false);
}

void HttpResponseParser::State::take(const BeastError& error) {
  if (error && error != http::error::need_more) {
    fault = "the answer is not HTTP: " + error.message();
    return;
  }
  if (!has_head && beast->parser.is_header_done()) {
    const auto& head = beast->parser.get();
    response.status = static_cast<int>(head.result_int());
    response.fields = fields_of(head);
    response.content_type = find_field(response.fields, "Content-Type").value_or("");
    response.close = !head.keep_alive();
    if (response.status / 100 == 1) return begin();
    has_head = true;
  }
  whole = has_head && beast->parser.is_done();
}

HttpResponseParser::HttpResponseParser(bool is_head) : state_(std::make_unique<State>(is_head)) {}
HttpResponseParser::HttpResponseParser(HttpResponseParser&&) noexcept = default;
HttpResponseParser& HttpResponseParser::operator=(HttpResponseParser&&) noexcept = default;
HttpResponseParser::~HttpResponseParser() = default;

std::size_t HttpResponseParser::put(std::string_view bytes) {
  State& s = *state_;
  if (s.whole || !s.fault.empty()) return 0;
  s.pending += bytes;
  std::string_view left = s.pending;
  BeastError error;
  while (!left.empty() && !s.whole && !error) {
    left.remove_prefix(s.beast->put(left, error));
    s.take(error);
  }
  const std::size_t rest = left.size();
  s.pending.erase(0, s.pending.size() - rest);
  if (!s.whole) return bytes.size();
  s.pending = {};
  return bytes.size() - rest;
}

void HttpResponseParser::put_end() {
  State& s = *state_;
  if (s.whole || !s.fault.empty()) return;
  BeastError error;
  if (s.has_head)
    s.beast->parser.put_eof(error);
  else
    error = http::error::partial_message;
  s.take(error);
}

bool HttpResponseParser::has_head() const { return state_->has_head; }
bool HttpResponseParser::is_whole() const { return state_->whole; }
const std::string& HttpResponseParser::fault() const { return state_->fault; }
const HttpResponse& HttpResponseParser::head() const { return state_->response; }
std::string HttpResponseParser::take_body() {
  return std::exchange(state_->beast->parser.get().body(), {});
}

}  // namespace derate
