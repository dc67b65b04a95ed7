#include "agent_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/http_url.h"
#include "base/printing.h"
#include "base/text.h"
#include "service/http/http_server.h"

namespace derate {

// web/ui.html and web/ui.csp, compiled in.
extern const char* const kUiPage;
extern const char* const kUiPolicy;

namespace agent {
namespace {

constexpr std::string_view kEvents = "/v1/events";
constexpr std::string_view kOperations = "/v1";
constexpr std::string_view kUi = "/ui", kSession = "/ui/session";
constexpr std::string_view kOpenMetrics = "application/openmetrics-text";
constexpr std::array<std::string_view, 3> kPages{"/metrics", "/livez", "/readyz"};
constexpr std::array<std::string_view, 3> kLoopback{"localhost", "127.0.0.1", "[::1]"};

// All that derated hears of a request's fields. Not Host, which is this program's business, and
// nothing that says who asks: that is the token, and the user of this process.
constexpr std::array<std::string_view, 4> kForwarded{"Accept", "Authorization", "Content-Type",
                                                     "Last-Event-ID"};
// Where two would mean different things to different readers.
constexpr std::array<std::string_view, 6> kOnce{"Host",         "Origin",         "Authorization",
                                                "Content-Type", "Content-Length", "Last-Event-ID"};
constexpr std::array<std::string_view, 3> kReturned{"Allow", "Retry-After", "WWW-Authenticate"};
constexpr std::size_t kLongestField = 1024, kLongestToken = 512, kLongestAnswer = 16 << 20;

bool is_one_of(std::string_view word, const auto& words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool is_hexadecimal(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool all_of(std::string_view text, std::string_view others) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_letter_or_digit(c) || others.find(c) != std::string_view::npos;
  });
}

bool accepts(const HttpRequest& request, std::string_view type) {
  const auto accept = find_field(request.fields, "Accept");
  return accept && to_lower(*accept).find(type) != std::string::npos;
}

bool prints(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

HttpResponse refusal(int status, std::string_view why, HttpFields fields = {}) {
  HttpResponse out = error_response(status, why);
  out.fields = std::move(fields);
  out.close = true;  // each further try is a connection, whose number is bounded
  return answer_of(std::move(out));
}

HttpResponse without_token() {
  return refusal(401,
                 "this needs a token: 'Authorization: Bearer TOKEN'; without one "
                 "there are /metrics, /livez and /readyz",
                 {{"WWW-Authenticate", "Bearer realm=\"derate\""}});
}

// The path as it was sent, and what follows it from '?' on.
std::pair<std::string_view, std::string_view> parts_of(std::string_view target) {
  const std::size_t at = std::min(target.find('?'), target.size());
  return {target.substr(0, at), target.substr(at)};
}

// No two readers see two paths in it: no percent, no empty part, no '.' or '..'.
bool is_plain_path(std::string_view path) {
  if (!path.starts_with('/')) return false;
  if (path == "/") return true;
  for (const std::string_view part : split(path.substr(1), '/'))
    if (part.empty() || part == "." || part == ".." || !all_of(part, "-._~:")) return false;
  return true;
}

bool is_operation(std::string_view path) {
  return path.starts_with(kOperations) &&
         (path.size() == kOperations.size() || path[kOperations.size()] == '/');
}

// What RFC 3986 has stand in a query, each '%' before two hexadecimal digits.
bool is_query(std::string_view query) {
  for (std::size_t i = 0; i < query.size(); ++i) {
    if (query[i] == '%') {
      if (query.size() - i < 3 || !is_hexadecimal(query[i + 1]) || !is_hexadecimal(query[i + 2]))
        return false;
    } else if (!all_of(query.substr(i, 1), "-._~!$&'()*+,;=:@/?")) {
      return false;
    }
  }
  return true;
}

// RFC 6750's b64token.
bool is_bearer(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (to_lower(value.substr(0, kScheme.size())) != kScheme) return false;
  std::string_view token = trim(value.substr(kScheme.size()));
  if (token.size() > kLongestToken) return false;
  while (token.ends_with('=')) token.remove_suffix(1);
  return !token.empty() && all_of(token, "-._~+/");
}

// "gpu7:443" of an origin or a Host: without the port that its scheme has anyway.
std::string without_default_port(std::string_view authority, std::string_view scheme) {
  const std::string_view port = scheme == "https" ? ":443" : ":80";
  if (authority.ends_with(port)) authority.remove_suffix(port.size());
  return to_lower(authority);
}

// A page of another origin may send a request from the browser of who may come here.
bool is_same_origin(std::string_view origin, std::string_view host) {
  const std::size_t end = origin.find("://");
  if (end == std::string_view::npos) return false;
  const std::string scheme = to_lower(origin.substr(0, end));
  if (scheme != "http" && scheme != "https") return false;
  return without_default_port(origin.substr(end + 3), scheme) == without_default_port(host, scheme);
}

std::optional<HttpResponse> refuse_fields(const HttpRequest& request) {
  for (const std::string_view name : kOnce)
    if (std::count_if(request.fields.begin(), request.fields.end(), [&](const auto& field) {
          return to_lower(field.first) == to_lower(name);
        }) > 1)
      return refusal(400, fmt::format("the field {} is there twice", name));
  for (const std::string_view name : kForwarded) {
    const auto value = find_field(request.fields, name);
    if (value && (value->size() > kLongestField || !prints(*value)))
      return refusal(400, fmt::format("the field {} is allowed {} printing ASCII characters", name,
                                      kLongestField));
  }
  return std::nullopt;
}

// A name of another machine that leads here is how a page in a browser gets around its origin (DNS
// rebinding).
std::optional<HttpResponse> refuse_origin(const HttpRequest& request, const AgentRules& rules) {
  const auto host = find_field(request.fields, "Host");
  if (!host) return refusal(400, "there is no field Host");
  const auto name = host_of(*host);
  if (!name) return refusal(400, "the field Host is no host with or without a port");
  if (!is_one_of(*name, kLoopback) && !is_one_of(*name, rules.hosts))
    return refusal(421, fmt::format("host '{}' is not served here: allowed are localhost, "
                                    "127.0.0.1, [::1] and what --allow-host names",
                                    printing_text(*name)));
  if (const auto origin = find_field(request.fields, "Origin"))
    if (!is_same_origin(*origin, *host))
      return refusal(403, "a page of another origin may not ask this");
  return std::nullopt;
}

std::optional<HttpResponse> refuse_method(const HttpRequest& request, std::string_view allowed) {
  if (is_one_of(request.method, split(allowed, ' '))) return std::nullopt;
  std::string list(allowed);
  for (std::size_t at = 0; (at = list.find(' ', at)) != std::string::npos; at += 2)
    list.replace(at, 1, ", ");
  return refusal(405, fmt::format("allowed here is {}", list), {{"Allow", list}});
}

// Of everyone: what is asked does not depend on who asks, so that one answer is everyone's.
Verdict judge_page(const HttpRequest& request, std::string_view path, std::string_view query) {
  if (auto refused = refuse_method(request, "GET HEAD")) return *std::move(refused);
  if (!query.empty()) return refusal(400, fmt::format("{} has no parameters", path));
  if (!request.body.empty()) return refusal(400, "a request that reads has no body");
  if (path == "/") return Passed{};
  if (path == kUi) return Passed{.duty = Duty::own_page};
  Passed out{.duty = Duty::page, .ask = {.target = std::string(path)}};
  if (path == "/metrics") {
    const bool open = accepts(request, kOpenMetrics);
    out.ask.fields = {{"Accept", open ? fmt::format("{};version=1.0.0", kOpenMetrics)
                                      : "text/plain;version=0.0.4"}};
  }
  return out;
}

// Its answers depend neither on the caller nor on the name in Host.
Verdict judge_metrics_only(const HttpRequest& request) {
  const auto [path, query] = parts_of(request.target);
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (reads && is_one_of(path, kPages)) return judge_page(request, path, query);
  return refusal(404, "here are /metrics, /livez and /readyz, to be read");
}

// From the page itself: a browser says its origin with each POST.
Verdict judge_session(const HttpRequest& request, std::string_view query) {
  constexpr std::size_t kLongest = 256;
  if (auto refused = refuse_method(request, "POST")) return *std::move(refused);
  if (!query.empty()) return refusal(400, fmt::format("{} has no parameters", kSession));
  if (request.body.size() > kLongest) return refusal(413, "a code is not as long as that");
  if (!find_field(request.fields, "Origin")) return refusal(403, "only the page asks this");
  return Passed{.duty = Duty::session, .ask = {.body = request.body}};
}

Verdict judge_operation(const HttpRequest& request) {
  const bool stream = duty_of(request) == Duty::stream;
  if (auto refused = refuse_method(request, stream ? "GET" : "GET HEAD POST"))
    return *std::move(refused);
  const auto token = find_field(request.fields, "Authorization");
  if (!token || !is_bearer(*token)) return without_token();
  if (request.method != "POST" && !request.body.empty())
    return refusal(400, "a request that reads has no body");
  Passed out{.duty = stream ? Duty::stream : Duty::control};
  out.ask = {.method = request.method == "POST" ? "POST" : "GET",
             .target = request.target,
             .body = request.body,
             .most_bytes = kLongestAnswer};
  for (const std::string_view name : kForwarded)
    if (auto value = find_field(request.fields, name))
      out.ask.fields.emplace_back(name, *std::move(value));
  // derated would refuse it before it looks at the token.
  const std::size_t most = HttpServerOptions{}.most_head_bytes;
  if (const std::size_t size = head_bytes(out.ask); size > most)
    return refusal(
        431, fmt::format("the head has {} bytes as it is passed on, allowed are {}", size, most));
  return out;
}

}  // namespace

Duty duty_of(const HttpRequest& head) {
  const auto [path, query] = parts_of(head.target);
  if (path == kEvents && accepts(head, "text/event-stream")) return Duty::stream;
  if (is_operation(path)) return Duty::control;
  if (path == kUi) return Duty::own_page;
  if (path == kSession) return Duty::session;
  return is_one_of(path, kPages) ? Duty::page : Duty::own_text;
}

Verdict judge(const HttpRequest& request, const AgentRules& rules) {
  if (auto refused = refuse_fields(request)) return *std::move(refused);
  if (rules.metrics_only) return judge_metrics_only(request);
  if (auto refused = refuse_origin(request, rules)) return *std::move(refused);
  const auto [path, query] = parts_of(request.target);
  if (!is_plain_path(path))
    return refusal(400, "a path here is of letters, digits and -._~: between single '/'");
  if (!is_query(query)) return refusal(400, "the query is not percent-encoded");
  if (path == "/" || is_one_of(path, kPages)) return judge_page(request, path, query);
  if (is_operation(path)) return judge_operation(request);
  if (rules.page && path == kUi) return judge_page(request, path, query);
  if (rules.page && path == kSession) return judge_session(request, query);
  return refusal(404, fmt::format("'{}' is not here: see /", path));
}

HttpResponse answer_of(HttpResponse from_derated) {
  HttpFields fields;
  for (const std::string_view name : kReturned)
    if (auto value = find_field(from_derated.fields, name))
      fields.emplace_back(name, *std::move(value));
  fields.emplace_back("Cache-Control", "no-store");
  fields.emplace_back("X-Content-Type-Options", "nosniff");
  from_derated.fields = std::move(fields);
  return from_derated;
}

HttpResponse own_text() {
  HttpResponse out{.content_type = "text/plain; charset=utf-8"};
  out.body =
      "derate-agent: Derate over HTTP.\n"
      "  /metrics   for Prometheus: text or OpenMetrics\n"
      "  /livez     200 while derated's loop turns\n"
      "  /readyz    200 while its samples are fresh, else 503 and the reason\n"
      "  /v1/...    operations, with 'Authorization: Bearer TOKEN'; /v1/events streams\n";
  return answer_of(std::move(out));
}

HttpResponse own_page() {
  HttpResponse out{.content_type = "text/html; charset=utf-8", .body = kUiPage};
  out = answer_of(std::move(out));
  out.fields.emplace_back("Content-Security-Policy", trim(kUiPolicy));
  out.fields.emplace_back("Referrer-Policy", "no-referrer");
  out.fields.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  out.fields.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
  out.fields.emplace_back("X-Frame-Options", "DENY");
  return out;
}

}  // namespace agent
}  // namespace derate
