// Reads the metrics pages of engines that serve language models, over HTTP.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/service_requests.h"
#include "base/clock.h"
#include "base/http_url.h"
#include "base/result.h"
#include "signal/serving/read_engine.h"

namespace derate {

// The address of a page, and the series that count on it.
struct ScrapeTarget {
  std::string service;  // its name
  std::string metrics;  // the address, as it was given
  HttpTarget url;
  std::optional<ConfiguredEngine> names;  // empty: an engine that Derate knows
  std::string model;                      // whose metrics count; empty: there may be one
  Duration every{};

  bool operator==(const ScrapeTarget&) const = default;
};
// Errors: invalid_argument, for an address that is none.
Result<ScrapeTarget> scrape_target(const ServiceView& service);

// The time that a page may take: its connection and its answer each.
inline constexpr Duration kPagePatience = std::chrono::seconds(1);

// Reads the page once. Redirects are not followed, and nothing compressed is accepted. Errors:
// those of connecting and of http_call(); query_failed for a status that is not 200; those of
// read_engine().
Result<EngineReading> scrape(const ScrapeTarget& target, Clock& clock);

// When the next reading of a page is due: failures in a row make it rarer, up to 8 s, so that an
// engine that starts is found soon.
Duration scrape_after(int failures, Duration every);

}  // namespace derate
