// derate report: an experiment's figures as one page that needs nothing else, or one job's ticks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <span>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/printing.h"
#include "base/text.h"
#include "command_options.h"
#include "govern/records_file.h"
#include "lab/figures.h"
#include "lab_view.h"
#include "packed.h"
#include "terminal/output.h"
#include "version.h"

namespace derate {

// Of web/, compiled in.
extern const char* const kReportHtml;

}  // namespace derate

namespace derate::cli {
namespace {

constexpr std::size_t kPoints = 300;  // of a time series: what a screen shows

Json rounded(const std::optional<float>& value) {
  return value ? Json(std::lround(*value)) : Json(nullptr);
}

// Its mean over ticks, in percent; null where none has it.
Json mean_percent(std::span<const Tick> ticks, std::optional<float> Tick::*member) {
  double sum = 0;
  std::size_t count = 0;
  for (const Tick& tick : ticks)
    if (tick.*member) sum += *(tick.*member), ++count;
  return count == 0 ? Json(nullptr) : Json(std::lround(100 * sum / static_cast<double>(count)));
}

// Point and text; of those at one point the last.
Json remarks_json(const JobRecord& job, std::size_t points) {
  Json out = Json::array();
  for (const Remark& remark : job.remarks) {
    const std::size_t point = remark.tick * points / std::max<std::size_t>(1, job.ticks.size());
    if (!out.empty() && out.back()[0] == point) out.erase(out.size() - 1);
    out.push_back({point, remark.text});
  }
  return out;
}

// At most kPoints points: clocks as they were at the point, power and utilisation their means until
// the next.
Json trace_json(const StoredJob& stored, std::size_t stage) {
  const auto& ticks = stored.job.ticks;
  const std::size_t points = std::min(kPoints, ticks.size());
  Json clock = Json::array(), asked = clock, power = clock, gpu = clock, memory = clock,
       probing = clock;
  for (std::size_t i = 0; i < points; ++i) {
    const std::size_t begin = i * ticks.size() / points, end = (i + 1) * ticks.size() / points;
    const std::span<const Tick> here(ticks.data() + begin, end - begin);
    double watts = 0;
    bool probed = false;
    for (const Tick& tick : here) {
      watts += tick.power_w;
      probed = probed || tick.probing;
    }
    clock.push_back(std::lround(here.front().clock_mhz));
    asked.push_back(rounded(here.front().asked_mhz));
    power.push_back(std::lround(watts / static_cast<double>(here.size())));
    gpu.push_back(mean_percent(here, &Tick::gpu_utilisation));
    memory.push_back(mean_percent(here, &Tick::memory_utilisation));
    probing.push_back(probed ? 1 : 0);
  }
  return {{"stage", stage},
          {"app", stored.job.app},
          {"policy", stored.session.policy},
          {"job", stored.id},
          {"step_seconds",
           seconds(stored.job.time) / static_cast<double>(std::max<std::size_t>(1, points))},
          {"clock", std::move(clock)},
          {"asked", std::move(asked)},
          {"power", std::move(power)},
          {"gpu", std::move(gpu)},
          {"memory", std::move(memory)},
          {"probing", std::move(probing)},
          {"remarks", remarks_json(stored.job, points)}};
}

// Errors: bad_data if the experiment has no such stage, as after another program changed the file.
Result<std::size_t> stage_of(const std::vector<StageResult>& stages, const SessionKey& key) {
  for (std::size_t i = 0; i < stages.size(); ++i)
    if (stages[i].chip == key.chip && stages[i].cell == key.cell) return i;
  return Error{
      Errc::bad_data,
      fmt::format("a session is of '{}{}{}', which the experiment does not have",
                  printing_text(key.chip), key.cell.empty() ? "" : ", ", printing_text(key.cell))};
}

// The first job of each application under each policy; of a stress grid the first stage's.
Result<Json> traces(const LabStore& store, const std::vector<StageResult>& stages,
                    const std::vector<StoredJob>& jobs) {
  Json out = Json::array();
  for (const StoredJob& job : jobs) {
    if (job.session.repetition != 0 || !job.job.error.empty()) continue;
    const std::size_t stage = TRY(stage_of(stages, job.session));
    if (stage > 0 && !stages[stage].cell.empty()) continue;
    out.push_back(trace_json(TRY(store.job(job.id)), stage));
  }
  return out;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '>' ? "&gt;" : std::string(1, c);
  return out;
}

std::string filled(std::string page, const std::string& mark, const std::string& text) {
  return page.replace(page.find(mark), mark.size(), text);
}

Result<int> show_job(const LabStore& store, const ReportOptions& options) {
  const StoredJob stored = TRY(store.job(*options.job));
  if (options.json) {
    Json ticks = Json::array();
    for (const Tick& tick : stored.job.ticks) {
      Json one = {{"time_seconds", tick.time_s},
                  {"sm_clock_mhz", tick.clock_mhz},
                  {"power_watts", tick.power_w},
                  {"probing", tick.probing}};
      if (tick.asked_mhz) one["asked_clock_mhz"] = *tick.asked_mhz;
      if (tick.gpu_utilisation) one["gpu_utilisation_ratio"] = *tick.gpu_utilisation;
      if (tick.memory_utilisation) one["memory_utilisation_ratio"] = *tick.memory_utilisation;
      ticks.push_back(std::move(one));
    }
    return print_json("report", {{"job", stored.id},
                                 {"app", stored.job.app},
                                 {"policy", stored.session.policy},
                                 {"ticks", std::move(ticks)}});
  }
  print("job {}: {} under {} on {}, repetition {}\n", stored.id, stored.job.app,
        stored.session.policy, stored.session.chip, stored.session.repetition);
  Table table({"time", "SM clock", "power", "<why"});
  const auto& ticks = stored.job.ticks;
  if (ticks.empty() && !stored.job.remarks.empty())
    return Error{Errc::bad_data, fmt::format("job {} has remarks and no ticks", stored.id)};
  for (const Remark& remark : stored.job.remarks) {
    const Tick& tick = ticks[std::min<std::size_t>(remark.tick, ticks.size() - 1)];
    table.add({fmt::format("{:.1f} s", tick.time_s), fmt::format("{:.0f} MHz", tick.clock_mhz),
               fmt::format("{:.0f} W", tick.power_w), remark.text});
  }
  print("{}", table.text());
  return exit_code::kOk;
}

// Everything that the page shows of one file of results.
Result<Json> report_json(const LabStore& store, const std::string& data) {
  const Plan plan = TRY(stored_plan(store, data));
  const auto jobs = TRY(store.jobs());
  const auto stages = figures(plan, jobs);
  Json out = lab_json(plan, stages, overall(plan, jobs), TRY(origin_of(store)));
  Json axes_shown = Json::object();
  for (const auto& [axis, value] : plan.stages.front().cell.values)
    axes_shown[axis->key] =
        fmt::format("{}{}{}", axis->label, *axis->unit == '\0' ? "" : ", ", axis->unit);
  out["axes"] = std::move(axes_shown);
  out["version"] = kVersion;
  out["traces"] = TRY(traces(store, stages, jobs));
  return out;
}

// Results that would be lost if the page were written there.
Result<void> check_output(const std::string& path, const ReportOptions& options) {
  std::error_code ignored;
  for (const std::string& results : {options.results, options.beside})
    if (!results.empty() && std::filesystem::equivalent(path, results, ignored))
      return Error{Errc::invalid_argument,
                   fmt::format("--output {}: these are the results themselves", path)};
  return {};
}

}  // namespace

Result<int> run_verb(const ReportOptions& options) {
  const LabStore store = TRY(LabStore::open(options.results));
  if (options.job) return show_job(store, options);
  Json results = TRY(report_json(store, options.data));
  if (options.json) return print_json("report", results);
  std::string title = results["experiment"];
  Json all = Json::array({std::move(results)});
  if (!options.beside.empty()) {
    const LabStore beside = TRY(LabStore::open(options.beside));
    all.push_back(TRY(report_json(beside, options.data)));
    title = fmt::format("{}; {}", title, all.back()["experiment"].get<std::string>());
  }
  const std::string path =
      options.output.empty()
          ? std::filesystem::path(options.results).replace_extension(".html").string()
          : options.output;
  TRY(check_output(path, options));
  std::string page = filled(kReportHtml, "@TITLE@", escaped(title));
  page = filled(std::move(page), "@DATA@", packed(json_text(all)));
  TextFile file = TRY(TextFile::create(path));  // in place: it may be a link, a pipe or a device
  TRY(file.write(page));
  print("{}: {:.2f} MB\n", path, static_cast<double>(page.size()) / 1e6);
  return exit_code::kOk;
}

}  // namespace derate::cli
