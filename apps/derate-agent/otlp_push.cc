#include "otlp_push.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/printing.h"
#include "base/text.h"
#include "duties.h"
#include "service/http/http_call.h"
#include "service/transport/tcp_connect.h"

namespace derate::agent {
namespace {

constexpr Duration kFirstWait = std::chrono::seconds(5), kMostRetryAfter = std::chrono::minutes(10);
constexpr Duration kPatienceWithDerated = std::chrono::seconds(10);
constexpr std::size_t kMostAnswer = 64 << 10;

std::string this_host() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// What is told of this machine and service unless the environment says otherwise.
OtlpAttributes resource_of(const OtlpPush& push) {
  OtlpAttributes out = push.to.resource;
  const auto add = [&](const char* key, const std::string& value) {
    const bool known =
        std::any_of(out.begin(), out.end(), [&](const auto& each) { return each.first == key; });
    if (!known && !value.empty()) out.emplace_back(key, value);
  };
  const std::string host = this_host();
  add("service.name", "derate");
  add("service.instance.id", host);
  add("service.version", push.version);
  add("host.name", host);
  return out;
}

Result<std::string> metrics_of(const OtlpPush& push) {
  const HttpResponse answer = TRY(call_derated(
      push.sockets,
      {.target = "/metrics", .fields = {{"Accept", "application/openmetrics-text; version=1.0.0"}}},
      kPatienceWithDerated));
  if (answer.status != 200)
    return Error{errc_of_status(answer.status),
                 fmt::format("derated answered {} for its metrics", answer.status)};
  return answer.body;
}

Result<HttpResponse> post(const OtlpPush& push, std::string body) {
  SystemClock clock;
  HttpAsk ask{.method = "POST",
              .target = push.to.target.path,
              .host = push.to.target.authority(),
              .fields = {{"Content-Type", "application/json"},
                         {"User-Agent", "derate-agent/" + push.version}},
              .body = std::move(body),
              .most_bytes = kMostAnswer};
  ask.fields.insert(ask.fields.end(), push.to.fields.begin(), push.to.fields.end());
  const std::string where = push.to.target.authority();
  UniqueFd socket = TRY(connect_to(push.to.target, clock, clock.now() + push.to.patience));
  return http_call_on(std::move(socket), where, ask, push.to.patience);
}

std::optional<Duration> retry_after_of(const HttpResponse& answer) {
  const auto field = find_field(answer.fields, "Retry-After");
  const auto number = field ? parse_integer(trim(*field)) : std::nullopt;
  if (!number || *number < 0) return std::nullopt;
  return std::min<Duration>(kMostRetryAfter,
                            std::chrono::seconds(std::min<std::int64_t>(*number, 86'400)));
}

}  // namespace

Result<OtlpRefusal> push_once(const OtlpPush& push, const Clock& clock,
                              std::optional<Duration>& retry_after) {
  retry_after.reset();
  const std::string text = TRY(metrics_of(push));
  const OtlpSource source{resource_of(push), push.version, clock.wall_now()};
  std::string body = otlp_request(TRY(read_open_metrics(text)), source);
  const HttpResponse answer = TRY(post(push, std::move(body)));
  if (answer.status / 100 == 2) return refusal_in(answer.body);
  retry_after = retry_after_of(answer);
  return Error{errc_of_status(answer.status),
               fmt::format("'{}' answered {}: {}", push.to.target.authority(), answer.status,
                           log_text(answer.body, 200))};
}

Duration wait_after(int failures, std::optional<Duration> retry_after, Duration interval) {
  if (failures == 0) return interval;
  const Duration grown = kFirstWait * (1 << std::min(failures - 1, 10));
  return std::max(std::min(grown, interval), retry_after.value_or(Duration::zero()));
}

void push_forever(const OtlpPush& push, Clock& clock) {
  int failures = 0;
  bool refuses = false;
  for (Instant next = clock.now();;) {
    std::optional<Duration> retry_after;
    const auto outcome = push_once(push, clock, retry_after);
    if (!outcome.ok()) {
      if (failures++ == 0) push.log.warning("metrics are not pushed: " + outcome.error().message);
    } else {
      if (failures > 0)
        push.log.info(fmt::format("metrics are pushed again, after {} tries", failures));
      failures = 0;
      if (outcome->points > 0 && !refuses)
        push.log.warning(fmt::format("'{}' refuses {} of the metrics' values: {}",
                                     push.to.target.authority(), outcome->points,
                                     log_text(outcome->why, 200)));
      refuses = outcome->points > 0;
    }
    const Instant now = clock.now();
    // As regular as it can be: what a push takes does not add up.
    next = failures > 0 ? now + wait_after(failures, retry_after, push.to.interval)
                        : std::max(now, next + push.to.interval);
    (void)clock.sleep_until(next);
  }
}

}  // namespace derate::agent
