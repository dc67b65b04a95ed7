#include "service/scrape/engine_scraper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/printing.h"
#include "service/http/http_call.h"
#include "service/transport/tcp_connect.h"
#include "signal/serving/exposition.h"

namespace derate {
namespace {

constexpr Duration kMostWait = std::chrono::seconds(8);
constexpr std::size_t kLongestShown = 100;

// The error of an answer that is no page.
Error no_page(const HttpResponse& answer) {
  if (answer.status / 100 == 3)
    return {Errc::query_failed,
            fmt::format("HTTP status {}: redirects are not followed", answer.status)};
  return {Errc::query_failed,
          fmt::format("HTTP status {}: {}", answer.status, log_text(answer.body, kLongestShown))};
}

}  // namespace

Result<ScrapeTarget> scrape_target(const ServiceView& service) {
  HttpTarget url = TRY(parse_http_url(service.metrics));
  return ScrapeTarget{.service = service.name,
                      .metrics = service.metrics,
                      .url = std::move(url),
                      .names = service.names,
                      .model = service.wanted_model,
                      .every = from_seconds(std::clamp(service.every_seconds, 0.1, 60.0))};
}

Result<EngineReading> scrape(const ScrapeTarget& target, Clock& clock) {
  const HttpAsk ask{.target = target.url.path,
                    .host = target.url.authority(),
                    .fields = {{"Accept", "text/plain;version=0.0.4"},
                               {"Accept-Encoding", "identity"},
                               {"User-Agent", "derate-agent"}},
                    .most_bytes = kMostExpositionBytes};
  UniqueFd socket = TRY(connect_to(target.url, clock, clock.now() + kPagePatience));
  const HttpResponse answer =
      TRY(http_call_on(std::move(socket), target.url.authority(), ask, kPagePatience));
  if (answer.status != 200) return no_page(answer);
  const auto encoding = find_field(answer.fields, "Content-Encoding");
  if (encoding && *encoding != "identity")
    return Error{Errc::query_failed, fmt::format("Content-Encoding '{}': allowed is identity",
                                                 log_text(*encoding, kLongestShown))};
  if (!target.names) return read_engine(answer.body, nullptr, target.model);
  const EngineNames names = engine_names(*target.names);
  return read_engine(answer.body, &names, target.model);
}

Duration scrape_after(int failures, Duration every) {
  constexpr Duration kLeastWait = std::chrono::seconds(1);
  if (failures <= 0) return every;
  return std::max(every, std::min(kMostWait, kLeastWait * (1 << std::min(failures - 1, 10))));
}

}  // namespace derate
