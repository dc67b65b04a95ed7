#include "advise_history_view.h"

#include <fmt/format.h>

#include <cmath>

#include "base/energy_text.h"
#include "base/json.h"
#include "base/text.h"
#include "base/when.h"
#include "history_view.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr double kSecondsAnHour = 3600;

WallTime wall_of(std::int64_t unix_seconds) { return WallTime(std::chrono::seconds(unix_seconds)); }

// "112.4 h", "23 min", "12 s"
std::string hours(Duration time) {
  if (seconds(time) < 60) return fixed_text(seconds(time), 0) + " s";
  if (seconds(time) < kSecondsAnHour) return fixed_text(seconds(time) / 60, 0) + " min";
  return fixed_text(seconds(time) / kSecondsAnHour, 1) + " h";
}
std::string percent(double ratio) { return fixed_text(100 * ratio, 1) + " %"; }
// "10 to 15", in percent
std::string between(const ShareEstimate& share) {
  return fmt::format("{} to {}", fixed_text(100 * share.low, 0), fixed_text(100 * share.high, 0));
}

std::string paragraph(const std::string& text, std::size_t width) {
  std::string out;
  for (const std::string& line : wrap_text(text, width - 3, 20, {.utf8 = shows_utf8()}))
    out += "   " + line + "\n";
  return out;
}

std::string governed_text(const GovernedTime& each) {
  std::string out = fmt::format("Governed by {} for {}", each.policy, hours(each.time));
  if (each.saving)
    out += fmt::format(": saved about {} (90 % sure {})", percent(each.saving->mean),
                       between(*each.saving));
  if (each.performance)
    out += fmt::format("{} performance {} of the highest clock's", each.saving ? "," : ":",
                       percent(each.performance->value()));
  if (each.promised) out += fmt::format(", promised {}", percent(each.promised->value()));
  if (each.promised)
    out += each.broken > Duration::zero() ? fmt::format(", below it for {}", hours(each.broken))
                                          : ", never below it";
  return out + ".";
}

std::string outcomes_text(const Recommendation& said) {
  Table table({"may lose", "saves", "<90 % sure", "", "loses", "<90 % sure", "<"});
  for (std::size_t i = 0; i < said.outcomes.size(); ++i) {
    const PromiseOutcome& each = said.outcomes[i];
    table.add({fmt::format("{:g} %", std::round(1000 * each.delta) / 10), percent(each.saving.mean),
               between(each.saving), kwh_text(each.saving.mean * said.told_at_highest.value()),
               percent(each.loss.mean), between(each.loss), said.best == i ? "advised" : ""});
  }
  return table.text();
}

std::string advice(const RecommendedGpu& gpu) {
  const Recommendation& said = gpu.said;
  if (said.best)
    return fmt::format(
        "Advised: derate policy set assure --delta {:g} -i {}. Of these promises it has the least "
        "energy times time squared for the same work. It is told by measured applications that "
        "are like it; how the work itself follows the clock 'assure' finds out in the first "
        "seconds "
        "of a job, and it keeps the promise.",
        said.outcomes[*said.best].delta, gpu.gpu.index);
  if (!said.outcomes.empty())
    return "No promise is 90 % sure to save anything here. 'assure' would find out in the first "
           "seconds of a job, and keep its promise.";
  return said.at_work > Duration::zero()
             ? "Nothing can be told: nobody knows how it performed at the clocks that it had."
             : "Nothing to advise: there was no work in that time.";
}

std::string gpu_text(const RecommendedGpu& gpu, std::size_t width) {
  const Recommendation& said = gpu.said;
  std::string out =
      toned(fmt::format("GPU {}", gpu_cell(gpu.gpu.index, gpu.gpu.uuid)), Paint::accent) + "  " +
      gpu.gpu.name +
      fmt::format("  {} to {}\n", when_text(wall_of(gpu.from_unix_seconds)),
                  when_text(wall_of(gpu.to_unix_seconds)));
  out += paragraph(
      fmt::format("At work for {} of {} that are known.", hours(said.at_work), hours(said.covered)),
      width);
  for (const GovernedTime& each : said.governed) out += paragraph(governed_text(each), width);
  if (!said.outcomes.empty()) {
    out +=
        paragraph(fmt::format("The work of {} of it takes {} at the highest clock. Under 'assure' "
                              "it would have come to:",
                              hours(said.told), kwh_text(said.told_at_highest.value())),
                  width);
    out += outcomes_text(said);
  }
  return out + paragraph(advice(gpu), width);
}

Json share_json(const ShareEstimate& share) {
  return {{"ratio", share.mean}, {"low_ratio", share.low}, {"high_ratio", share.high}};
}

Json governed_json(const GovernedTime& each) {
  Json out = {{"policy", each.policy},
              {"seconds", seconds(each.time)},
              {"energy_joules", each.energy.value()},
              {"broken_seconds", seconds(each.broken)}};
  if (each.saving) out["saving"] = share_json(*each.saving);
  if (each.performance) out["performance_ratio"] = each.performance->value();
  if (each.promised) out["promised_performance_ratio"] = each.promised->value();
  return out;
}

Json gpu_json(const RecommendedGpu& gpu) {
  const Recommendation& said = gpu.said;
  Json out = {{"index", gpu.gpu.index},
              {"uuid", gpu.gpu.uuid},
              {"name", gpu.gpu.name},
              {"from_unix_seconds", gpu.from_unix_seconds},
              {"to_unix_seconds", gpu.to_unix_seconds},
              {"covered_seconds", seconds(said.covered)},
              {"at_work_seconds", seconds(said.at_work)},
              {"governed", Json::array()},
              {"told_seconds", seconds(said.told)},
              {"told_at_highest_joules", said.told_at_highest.value()},
              {"promises", Json::array()}};
  for (const GovernedTime& each : said.governed) out["governed"].push_back(governed_json(each));
  for (const PromiseOutcome& each : said.outcomes)
    out["promises"].push_back({{"delta_ratio", each.delta},
                               {"saving", share_json(each.saving)},
                               {"loss", share_json(each.loss)}});
  if (said.best)
    out["advised"] = {{"policy", "assure"}, {"delta_ratio", said.outcomes[*said.best].delta}};
  return out;
}

}  // namespace

std::string recommendation_text(const std::vector<RecommendedGpu>& gpus, std::size_t width) {
  std::string out;
  for (const RecommendedGpu& each : gpus)
    out += (out.empty() ? "" : "\n") + gpu_text(each, std::max<std::size_t>(width, 40));
  return out;
}

Json recommendation_json(const std::vector<RecommendedGpu>& gpus) {
  Json out = {{"gpus", Json::array()}};
  for (const RecommendedGpu& each : gpus) out["gpus"].push_back(gpu_json(each));
  mark_simulated(out["gpus"]);
  return out;
}

}  // namespace derate::cli
