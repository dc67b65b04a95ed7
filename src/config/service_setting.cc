#include "config/service_setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/http_url.h"
#include "base/printing.h"
#include "core/latency_promise.h"

namespace derate {
namespace {

constexpr std::size_t kLongestServiceName = 64;  // it is a label of metrics
constexpr std::size_t kShortestContainer = 12, kLongestContainer = 64;

Error wrong(const char* key, std::string_view value, std::string_view allowed) {
  return {Errc::invalid_argument,
          fmt::format("{} \"{}\": allowed is {}", key, log_text(value, 100), allowed)};
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestServiceName &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == '.';
         });
}

bool is_container(std::string_view text) {
  return text.size() >= kShortestContainer && text.size() <= kLongestContainer &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

}  // namespace

Result<void> check_service(const ServiceSetting& service) {
  if (!is_name(service.name))
    return wrong("name", service.name, "a name of 1 to 64 letters, digits, '-', '_' and '.'");
  if (const auto url = parse_http_url(service.metrics); !url.ok())
    return Error(url.error()).with("metrics");
  if (service.promise.size() > 1)
    return Error{Errc::invalid_argument, fmt::format("service \"{}\": {} promises: allowed is one",
                                                     service.name, service.promise.size())};
  for (const std::string& each : service.promise) {
    if (const auto read = parse_latency(each); !read.ok()) return read.error();
  }
  const bool of_processes = !service.process.empty() || !service.unit.empty() ||
                            !service.container.empty() || !service.user.empty();
  if (service.gpus.empty() && !of_processes)
    return Error{
        Errc::invalid_argument,
        fmt::format("service \"{}\": it has no GPUs: wanted gpus, process, unit, container or user",
                    service.name)};
  if (!service.gpus.empty() && of_processes)
    return Error{
        Errc::invalid_argument,
        fmt::format("service \"{}\": gpus says which GPUs it has: process, unit, container and "
                    "user are for a service without gpus",
                    service.name)};
  if (!service.container.empty() && !is_container(service.container))
    return wrong("container", service.container, "12 to 64 digits 0-9a-f, the begin of its ID");
  return {};
}

}  // namespace derate
