// derate attribute: the power of each GPU now, attributed to its processes and other tenants.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "api/requests.h"
#include "apps/common/open_gpus.h"
#include "attrib/tenancy_json.h"
#include "attrib/ticks_reader.h"
#include "attribute_view.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "command_options.h"
#include "govern/fleet/policy_choice.h"
#include "govern/records_file.h"
#include "integ/kube/machine_tenants.h"
#include "live_view.h"
#include "service/answers/attribution_service.h"
#include "service/transport/daemon_call.h"
#include "service/transport/signals.h"
#include "simulated.h"
#include "terminal/output.h"
#include "top_read.h"

namespace derate::cli {
namespace {

Json marked(Json picture) {
  if (picture.contains("gpus")) mark_simulated(picture["gpus"]);
  return picture;
}

// Pictures as they come: empty when there is none yet.
class Feed {
 public:
  virtual ~Feed() = default;
  virtual Result<std::optional<Json>> look() = 0;
  // How long to wait before the next look.
  virtual Duration pace() const = 0;
};

// What a daemon knows.
class DaemonFeed final : public Feed {
 public:
  DaemonFeed(DaemonLine line, const AttributeOptions& options)
      : line_(std::move(line)), options_(options) {}

  Result<std::optional<Json>> look() override {
    const Json all = TRY(all_gpus());
    std::vector<GpuId> ids;
    for (const Json& gpu : all)
      ids.push_back({gpu.value("index", 0), gpu.value("uuid", ""), "", gpu.value("name", "")});
    Json gpus = Json::array();
    if (ids.empty()) return std::optional<Json>();
    for (const int at : TRY(select_gpus(ids, options_.gpus)))
      gpus.push_back(all[static_cast<std::size_t>(at)]);
    return std::optional(Json{{"source", "derated"}, {"gpus", std::move(gpus)}});
  }
  Duration pace() const override { return from_seconds(options_.interval_s); }

 private:
  // The daemon answers some GPUs at a time.
  Result<Json> all_gpus() const {
    Json out = Json::array();
    AttributionRead request;
    while (true) {
      const Json answer = TRY(ask(line_, request_text(request)));
      for (const Json& gpu : answer.value("gpus", Json::array())) out.push_back(gpu);
      if (!answer.contains("more_after")) return out;
      request.after = TRY(answer_of<AttributionPage>(answer)).more_after;
    }
  }

  DaemonLine line_;
  const AttributeOptions& options_;
};

// A file that readings are written to, a line each.
class TicksFile {
 public:
  static Result<TicksFile> create(const std::string& path, const OpenGpus& gpus) {
    TicksFile out(TRY(TextFile::create(path)));
    Json boards = Json::array();
    for (const OpenGpu& gpu : gpus.gpus) {
      const Capability& capability = gpu.source->capability();
      boards.push_back(board_json(capability.id, board_facts(capability)));
    }
    const Json head = {{"derate_ticks", kTicksFormat}, {"gpus", std::move(boards)}};
    TRY(out.file_.write(json_text(head) + "\n"));
    return out;
  }
  // A failure is told once: the reader sees on.
  void add(const GpuId& gpu, const Tenancy& tenancy, const TenantNames& names,
           const ClockSummary& watched) {
    Json line = {
        {"gpu", gpu.uuid}, {"tenancy", tenancy_json(tenancy)}, {"names", names_json(names)}};
    if (watched.readings > 0) line["watched"] = watched_json(watched);
    const auto written = file_.write(json_text(line) + "\n");
    if (!written.ok() && !std::exchange(failed_, true))
      warn("derate: {}\n", written.error().message);
  }

 private:
  explicit TicksFile(TextFile file) : file_(std::move(file)) {}
  TextFile file_;
  bool failed_ = false;
};

// What the command line says comes before the settings.
Result<AttributionRules> chosen_rules(const AttributeOptions& options, const Settings& settings) {
  return attribution_rules(options.method.empty() ? settings.attribute_method : options.method,
                           options.idle_rule.empty() ? settings.idle_rule : options.idle_rule);
}

Json pictures_json(AttributionService& service) {
  Json out = Json::array();
  for (const auto& picture : service.pictures()) out.push_back(picture_json(*picture));
  return out;
}

// Read from the GPUs by this process.
class DirectFeed final : public Feed {
 public:
  static Result<std::unique_ptr<DirectFeed>> open(const AttributeOptions& options,
                                                  const Settings& settings, Clock& clock) {
    const AttributionRules how = TRY(chosen_rules(options, settings));
    auto gpus = TRY(open_gpus({.gpus = options.gpus,
                               .sim = options.sim,
                               .patience = Patience::of_loop,
                               .dcgm = machine_dcgm()},
                              clock));
    auto out = std::unique_ptr<DirectFeed>(new DirectFeed(clock, std::move(gpus)));
    for (const std::string& note : out->gpus_.notes) warn("derate: {}\n", note);
    if (!options.ticks.empty()) out->ticks_ = TRY(TicksFile::create(options.ticks, out->gpus_));
    out->begin(machine_tenant_resolver(settings.pod_resources, out->log_),
               {how, from_seconds(options.interval_s)});
    return out;
  }

  Result<std::optional<Json>> look() override {
    watch_clocks();
    service_->step(listed_);
    if (failed_.size() == listed_.size()) return Error{Errc::query_failed, failed_.front()};
    if (service_->ticks() < seen_ + listed_.size() - failed_.size()) return std::optional<Json>();
    seen_ = service_->ticks();
    return std::optional(Json{{"source", "read directly"}, {"gpus", pictures_json(*service_)}});
  }
  Duration pace() const override { return std::chrono::milliseconds(20); }

 private:
  DirectFeed(Clock& clock, OpenGpus gpus) : clock_(clock), gpus_(std::move(gpus)) {}

  // Between the ticks, as a daemon's governor does: cheap fields alone. What cannot be read is
  // watched no longer: it may hang, and the others wait.
  void watch_clocks() {
    if (clock_.now() < next_watch_) return;
    next_watch_ = clock_.now() + std::chrono::milliseconds(100);
    std::erase_if(watched_, [&](TelemetrySource* source) {
      const auto board = source->read({false, false, false});
      if (board.ok()) service_->watch(source->capability().id.uuid, *board);
      return !board.ok();
    });
  }

  void begin(ResolveTenants namer, AttributionService::Rules rules) {
    AttributionService::Options how{.name = std::move(namer)};
    how.log = Log([this](const LogRecord& record) {
      log_.write(record);
      failed_.push_back(record.text);
    });
    how.on_reading = [this](const GpuId& gpu, const Tenancy& tenancy, const TenantNames& names,
                            const ClockSummary& watched) {
      if (ticks_) ticks_->add(gpu, tenancy, names, watched);
    };
    service_ = std::make_unique<AttributionService>(clock_, std::move(how), rules);
    for (const OpenGpu& gpu : gpus_.gpus) {
      listed_.push_back({gpu.source.get(), listed_.size()});
      watched_.push_back(gpu.source.get());
    }
  }

  Clock& clock_;
  OpenGpus gpus_;
  Log log_ = program_log("derate");
  std::optional<TicksFile> ticks_;
  std::unique_ptr<AttributionService> service_;
  std::vector<AttributionService::Gpu> listed_;
  std::vector<TelemetrySource*> watched_;
  std::vector<std::string> failed_;  // GPUs that could not be read, and why
  std::uint64_t seen_ = 0;
  Instant next_watch_{};
};

// What the daemon cannot answer is read directly.
Result<std::unique_ptr<Feed>> open_feed(const AttributeOptions& options, Clock& clock) {
  const bool own = !options.method.empty() || !options.idle_rule.empty() ||
                   !options.ticks.empty() || !options.sim.chip.empty();
  if (!own) {
    const auto line = find_daemon();
    // One that hangs has the GPUs, and the time that was to be measured went by waiting for it.
    if (!line.ok() && line.error().code == Errc::gpu_stuck) return line.error();
    if (line.ok()) {
      const auto answer = ask(*line, request_text(AttributionRead{}));
      if (answer.ok() && answer->value("enabled", false))
        return std::unique_ptr<Feed>(std::make_unique<DaemonFeed>(*line, options));
    }
  }
  const Settings settings = TRY(load_settings(""));
  return std::unique_ptr<Feed>(TRY(DirectFeed::open(options, settings, clock)));
}

void show(const AttributeOptions& options, const Json& picture) {
  if (options.json)
    print_json("attribute", marked(picture));
  else
    print("{}", attribution_text(picture, terminal_width()));
}

// The last picture; empty when it ended before there was one.
Result<std::optional<Json>> watch(const AttributeOptions& options, Feed& feed, Clock& clock,
                                  Instant end) {
  const bool once = !options.watch && !options.time_s;
  std::optional<Json> newest;
  while (stop_signal() == 0 && clock.now() < end) {
    if (auto picture = TRY(feed.look())) {
      newest = std::move(picture);
      if (options.watch && options.json) print_json_line("attribute", marked(*newest));
      if (options.watch && !options.json) print("{}", attribution_text(*newest, terminal_width()));
      if (once) break;
    }
    clock.sleep_until(std::min(end, clock.now() + feed.pace()));
  }
  return newest;
}

// The same on a terminal, where one table of all tenants is renewed.
Result<std::optional<Json>> watch_live(Feed& feed, Screen& screen, Clock& clock, Instant end) {
  std::optional<Json> newest;
  LiveView live{.pace = feed.pace(), .end = end};
  live.choice.page = TopPage::tenants;
  live.choice.tenants_only = true;
  live.look = [&](TopPicture& picture) -> Result<bool> {
    auto seen = TRY(feed.look());
    if (!seen) return false;
    newest = std::move(seen);
    picture = attribution_picture(*newest);
    return true;
  };
  TRY(show_live(std::move(live), screen, clock));
  return newest;
}

// --- replay --------------------------------------------------------------------------------------

Json picture_of(const std::vector<GpuAttribution>& boards) {
  Json gpus = Json::array();
  for (const GpuAttribution& board : boards) gpus.push_back(picture_json(board.picture()));
  return {{"source", "replayed"}, {"gpus", std::move(gpus)}};
}

Result<int> replay(const AttributeOptions& options) {
  const Settings settings = TRY(load_settings(""));
  const AttributionRules rules = TRY(chosen_rules(options, settings));
  const std::string text = TRY(read_file(options.replay));
  std::optional<TicksReader> ticks;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", options.replay, number);
    if (!ticks) {
      ticks = TRY(TicksReader::create(line, rules).with(where));
      continue;
    }
    const bool ticked = TRY(ticks->take(line).with(where));
    if (ticked && options.json && options.watch)
      print_json_line("attribute", marked(picture_of(ticks->boards())));
  }
  if (!ticks || ticks->boards().empty())
    return Error{Errc::bad_data, options.replay + ": is empty"};
  if (!(options.json && options.watch)) show(options, picture_of(ticks->boards()));
  return 0;
}

}  // namespace

Result<int> run_verb(const AttributeOptions& options) {
  if (!options.replay.empty()) return replay(options);
  const Duration time = options.time_s ? from_seconds(*options.time_s) : Duration::max();
  SystemClock clock;
  const auto feed = TRY(open_feed(options, clock));
  watch_signals();
  const Instant end = time == Duration::max() ? Instant::max() : clock.now() + time;
  auto screen = options.json ? Error{Errc::not_supported, ""} : Screen::open();
  const bool live = screen.ok();
  const auto newest =
      live ? TRY(watch_live(*feed, **screen, clock, end)) : TRY(watch(options, *feed, clock, end));
  screen = Error{Errc::not_supported, ""};  // back to the user's own screen
  // A live view leaves the terminal as it was, unless a time was to be measured.
  if (live && !options.time_s) return 0;
  if (!newest) return Error{Errc::interrupted, "it ended before anything was read"};
  if (!(options.json && options.watch)) show(options, *newest);
  return 0;
}

Result<int> run_verb(const AttributeMethodsOptions& options) {
  if (options.json) {
    Json list = Json::array();
    for (const SplitMethodInfo& method : split_methods())
      list.push_back({{"name", method.name},
                      {"summary", method.summary},
                      {"needs_training", method.needs_training}});
    return print_json("attribute methods", {{"methods", std::move(list)}});
  }
  Table table({"method", "<summary"});
  for (const SplitMethodInfo& method : split_methods())
    table.add({method.name, fmt::format("{}{}", method.summary,
                                        method.needs_training ? " (in the lab only)" : "")});
  print("{}The first is the default. docs/attribute-results.md says how each was judged.\n",
        table.text());
  return 0;
}

}  // namespace derate::cli
