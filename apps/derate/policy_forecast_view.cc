#include "policy_forecast_view.h"

#include <fmt/format.h>

#include <cmath>

#include "terminal/output.h"

namespace derate::cli {
namespace {

// "12.3 %"
std::string percent(double ratio) { return fmt::format("{:.1f} %", 100 * ratio); }

// "10 to 15", in percent
std::string between(double low, double high) {
  return fmt::format("{:.0f} to {:.0f}", 100 * low, 100 * high);
}

std::string heading(const ForecastAnswer& answer) {
  std::string out = fmt::format("GPU {}", answer.index);
  if (answer.policy.empty()) return out + ", observed";
  out += ", " + answer.policy;
  if (answer.now_delta_ratio)
    out += fmt::format(", may lose {} of performance now", percent(*answer.now_delta_ratio));
  if (!answer.promise_from.empty() && answer.promise_from != "policy")
    out += fmt::format(" (promised by {})", answer.promise_from);
  if (answer.unconfirmed_seconds)
    out += fmt::format("; to be confirmed within {:.0f} s", *answer.unconfirmed_seconds);
  return out;
}

}  // namespace

std::string forecast_text(const ForecastAnswer& answer) {
  if (answer.forecasts.empty()) return fmt::format("{}: {}\n", heading(answer), answer.why);
  Table table({"may lose", "clock", "saves", "<90 % sure", "loses", "<90 % sure", "<"});
  for (const ForecastView& each : answer.forecasts) {
    const bool now =
        answer.now_delta_ratio && std::abs(*answer.now_delta_ratio - each.delta_ratio) < 5e-4;
    table.add({fmt::format("{:g} %", std::round(1000 * each.delta_ratio) / 10),
               fmt::format("{:.0f} MHz", each.clock_mhz), percent(each.saving_ratio),
               between(each.saving_low_ratio, each.saving_high_ratio), percent(each.loss_ratio),
               between(each.loss_low_ratio, each.loss_high_ratio), now ? "as now" : ""});
  }
  return fmt::format("{}\n{}\n", heading(answer), table.text());
}

}  // namespace derate::cli
