#include "service_view.h"

#include <fmt/format.h>

#include <optional>

#include "api/requests.h"
#include "base/json.h"
#include "terminal/output.h"
#include "terminal/text_width.h"

namespace derate::cli {
namespace {

std::string cell(const std::optional<double>& value, double scale, int digits, const char* unit) {
  return value ? fmt::format("{:.{}f}{}", *value * scale, digits, unit) : "-";
}

// "50 ms", "2.5 s".
std::string time_cell(const std::optional<double>& time) {
  if (!time) return "-";
  return *time < 1 ? fmt::format("{:.4g} ms", 1000 * *time) : fmt::format("{:.4g} s", *time);
}

std::string gpus_cell(const ServiceView& service) {
  std::string out;
  for (const ServiceGpuView& gpu : service.gpus)
    out += (out.empty() ? "" : ",") + std::to_string(gpu.index);
  return out.empty() ? "-" : out;
}

std::string requests_cell(const ServiceView& service) {
  if (!service.running) return "-";
  const std::string running = fmt::format("{:.0f}", *service.running);
  return service.waiting && *service.waiting > 0
             ? fmt::format("{} + {:.0f} wait", running, *service.waiting)
             : running;
}

std::vector<std::string> cells_of(const ServiceView& service) {
  const ServiceFigures figures = service.figures.value_or(ServiceFigures{});
  std::string promise = service_promise_text(service);
  for (const std::string& each : service.promise)
    promise = promise.empty() ? each : each + " " + promise;
  return {service.name,
          service.engine.empty() ? "-" : service.engine,
          gpus_cell(service),
          requests_cell(service),
          time_cell(figures.itl_p50_at_most_seconds),
          time_cell(figures.itl_p99_at_most_seconds),
          time_cell(figures.ttft_p99_at_most_seconds),
          cell(figures.late_ratio, 100, 2, " %"),
          cell(figures.late_by_clock_ratio, 100, 2, " %"),
          cell(figures.joules_per_token, 1, 2, ""),
          promise.empty() ? "-" : promise};
}

}  // namespace

std::string service_promise_text(const ServiceView& service) {
  if (service.promise_state != "broken") return service.promise_state;
  const ServiceFigures figures = service.figures.value_or(ServiceFigures{});
  return fmt::format("BROKEN: {:.3g} % late, {:.3g} % by the clock",
                     100 * figures.late_ratio.value_or(0),
                     100 * figures.late_by_clock_ratio.value_or(0));
}

std::string services_text(const Json& services) {
  const auto read = answer_of<ServicesAnswer>(Json{{"services", services}});
  if (!read.ok() || read->services.empty()) return "";
  Table table({"<service", "<engine", "<GPU", "running",
               "itl p50 <=", "p99 <=", "ttft p99 <=", "late", "by clock", "J/token", "<promise"});
  std::string troubles;
  for (const ServiceView& service : read->services) {
    table.add(cells_of(service), service.trouble.empty() ? Paint::plain : Paint::bad);
    if (!service.trouble.empty())
      troubles += fmt::format("service {}: {}\n", service.name, service.trouble);
    for (const ServiceGpuView& gpu : service.gpus)
      if (!gpu.why.empty())
        troubles += fmt::format("service {}: GPU {}: {}\n", service.name, gpu.index, gpu.why);
  }
  return "\n" + table.text() + troubles;
}

}  // namespace derate::cli
