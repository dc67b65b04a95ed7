#include "service/answers/attribution_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "govern/saving_json.h"

namespace derate {
namespace {

constexpr Duration kTidyEvery = std::chrono::hours(1);
// A board may draw more than its limit for a moment.
constexpr double kOverLimit = 1.5;
// Readings that fail now and then are logged as seldom as those that always do.
constexpr Duration kLogEvery = std::chrono::minutes(10);

}  // namespace

std::optional<AttributionService::Rules> attribution_service_rules(const Settings& settings) {
  if (!settings.attribute) return std::nullopt;
  const auto how = attribution_rules(settings.attribute_method, settings.idle_rule);
  if (!how.ok()) return std::nullopt;
  constexpr double kDay = 86400;
  return AttributionService::Rules{*how, from_seconds(settings.attribute_interval_s),
                                   from_seconds(settings.attribute_keep_days * kDay)};
}

AttributionService::AttributionService(Clock& clock, Options options, std::optional<Rules> rules)
    : clock_(clock),
      options_(std::move(options)),
      rules_(std::move(rules)),
      made_(clock.now()),
      namer_(options_.where) {
  if (options_.file.empty()) return;
  auto store = std::make_unique<UsageStore>(
      options_.file, [log = options_.log](const Error& error) { log.warning(error.message); });
  writer_ = std::make_unique<StoreWriter<UsageStore>>(std::move(store), options_.where);
}

void AttributionService::rules(std::optional<Rules> rules) {
  rules_ = std::move(rules);
  if (!rules_) {
    end_savings();
    begin_writing(Last::yes);
    run_begun_ = false;
    return;
  }
  for (const auto& attributed : gpus_) {
    attributed->gpu.rules(rules_->how);
    attributed->picture.reset();
  }
}

AttributionService::AttributedGpu& AttributionService::attributed_gpu(
    const TelemetrySource& source) {
  const Capability& capability = source.capability();
  for (const auto& attributed : gpus_)
    if (attributed->gpu.id().uuid == capability.id.uuid) return *attributed;
  const auto& limits = capability.power_limits;
  gpus_.push_back(std::make_unique<AttributedGpu>(
      AttributedGpu{GpuAttribution(capability.id, board_facts(capability), rules_->how,
                                   programs_of(capability.id.name)),
                    limits ? kOverLimit * limits->highest : Watts(kMostBoardWatts)}));
  return *gpus_.back();
}

void AttributionService::watch(const std::string& uuid, const Sample& board) {
  if (!rules_) return;
  for (const auto& attributed : gpus_)
    if (attributed->gpu.id().uuid == uuid) {
      attributed->gpu.watch(board);
      if (board.gpu_utilisation != Fraction(0)) attributed->empty_since.reset();
    }
}

void AttributionService::saved(const std::string& uuid, const Saving& more) {
  if (rules_ && (writer_ != nullptr || options_.on_tick)) saved_[uuid] += more;
}

// In whole millijoules: what they leave of it is in the next tick's.
UsageSavings AttributionService::take_saved(const std::string& uuid) {
  const auto at = saved_.find(uuid);
  if (at == saved_.end()) return {};
  const SavingSums whole = saving_sums(at->second);
  at->second -= saving_of(whole);
  return whole == SavingSums{} ? UsageSavings{} : UsageSavings{{kSavingMethod, whole}};
}

// What was saved since the last tick, where none comes after it.
void AttributionService::end_savings() {
  for (const auto& one : saved_)
    if (writer_ != nullptr)
      pending_.add_unallocated(one.first, take_saved(one.first), clock_.wall_now());
  saved_.clear();
}

// A GPU that nobody uses is surveyed less often where its driver takes CPU time. A reading with
// work makes it due.
bool AttributionService::is_due(const AttributedGpu& attributed, const Gpu& gpu) const {
  constexpr std::chrono::seconds kEmptyFor(10), kEmptyEvery(5);
  const auto costs = gpu.source->costs();
  if (costs == nullptr || costs->mean(DriverCall::sensors) < kCostlySensors) return true;
  const Instant now = clock_.now();
  if (!attributed.begun || !attributed.empty_since) return true;
  return now - *attributed.empty_since < kEmptyFor || now - *attributed.begun >= kEmptyEvery;
}

// One whose names are still looked for is passed over: its next tick is longer.
void AttributionService::begin(AttributedGpu& attributed, const Gpu& gpu) {
  if (attributed.reading || attributed.read) return;
  gpu.source->start_tenancy();
  attributed.begun = clock_.now();
  if (attributed.opening != gpu.opening) attributed.gpu.cut();
  attributed.opening = gpu.opening;
  attributed.reading = true;
}

void AttributionService::collect(AttributedGpu& attributed, const Gpu& gpu) {
  if (!attributed.reading || attributed.opening != gpu.opening) return;
  auto answer = gpu.source->poll_tenancy();
  if (!answer) return;
  attributed.reading = false;
  if (!answer->ok()) {
    attributed.picture.reset();
    attributed.gpu.failed(answer->error().message);
    if (attributed.logged && clock_.now() - *attributed.logged < kLogEvery) return;
    attributed.logged = clock_.now();
    options_.log.warning(fmt::format("GPU {}: not attributed: {}", attributed.gpu.id().index,
                                     answer->error().message),
                         {{"gpu", attributed.gpu.id().uuid}});
    return;
  }
  attributed.read = **std::move(answer);
  const bool empty = !attributed.read->mig && attributed.read->processes.empty();
  if (!empty)
    attributed.empty_since.reset();
  else if (!attributed.empty_since)
    attributed.empty_since = clock_.now();
  SaidJobs jobs;
  for (const GpuProcess& process : attributed.read->processes)
    if (auto job = job_of_(process.pid); !job.job.empty()) jobs[process.pid] = std::move(job);
  attributed.names =
      namer_.post([name = options_.name, id = attributed.gpu.id(), tenancy = *attributed.read,
                   jobs = std::move(jobs)] { return name(id, tenancy, jobs); });
}

void AttributionService::take(AttributedGpu& attributed) {
  if (!attributed.read || !is_ready(attributed.names)) return;
  const TenantNames names = attributed.names.get();
  const Tenancy tenancy = *std::exchange(attributed.read, std::nullopt);
  const ClockSummary watched = attributed.gpu.watched(tenancy.board.time);
  options_.on_reading(attributed.gpu.id(), tenancy, names, watched);
  attributed.picture.reset();
  const WallTime end = clock_.wall_now() - (clock_.now() - tenancy.board.time);
  resume(attributed, tenancy.board, end);
  const GpuAttribution::Taken* tick = attributed.gpu.take(tenancy, names, watched);
  if (tick == nullptr) return;
  ++ticks_;
  const UsageSavings savings = take_saved(attributed.gpu.id().uuid);
  if (options_.on_tick) options_.on_tick({attributed.gpu, *tick, end, savings});
  if (writer_ != nullptr) pending_.add(attributed.gpu, *tick, end, savings);
}

// On the first reading of a GPU, the energy that its counter gained since a killed run is counted
// as the board's.
void AttributionService::resume(AttributedGpu& attributed, const Sample& board, WallTime now) {
  if (writer_ == nullptr || std::exchange(attributed.resumed, true)) return;
  const auto counter_mj =
      board.energy ? std::optional(std::llround(board.energy->value() * 1000)) : std::nullopt;
  writer_->post([uuid = attributed.gpu.id().uuid, most = attributed.most, counter_mj,
                 now](UsageStore& store) { (void)store.resume(uuid, counter_mj, most, now).ok(); });
}

void AttributionService::step(std::span<const Gpu> gpus) {
  collect_written();
  // A reading that was begun of a source that is gone is never answered.
  for (const auto& attributed : gpus_)
    if (std::none_of(gpus.begin(), gpus.end(),
                     [&](const Gpu& gpu) { return gpu.opening == attributed->opening; }))
      attributed->reading = false, attributed->opening.reset();
  if (!rules_) return;
  begin_run(gpus);
  const Instant now = clock_.now();
  const bool due = now >= next_.value_or(now) && has_programs();
  if (due) {
    next_ = std::max(next_.value_or(now) + rules_->interval, now);
    // All begin before the first is asked: they answer side by side.
    for (const Gpu& gpu : gpus)
      if (AttributedGpu& attributed = attributed_gpu(*gpu.source); is_due(attributed, gpu))
        begin(attributed, gpu);
  }
  for (const Gpu& gpu : gpus) {
    AttributedGpu& attributed = attributed_gpu(*gpu.source);
    collect(attributed, gpu);
    take(attributed);
  }
  if (!last_write_) last_write_ = now;
  if (now - *last_write_ < (pending_.has_tenants() ? kWriteEvery : kWriteIdleEvery)) return;
  last_write_ = now;
  begin_writing();
}

// Before the first tick: what a run that was killed has lost is told even if this one is, too.
void AttributionService::begin_run(std::span<const Gpu> gpus) {
  if (writer_ == nullptr || gpus.empty() || std::exchange(run_begun_, true)) return;
  std::vector<std::string> uuids;
  for (const Gpu& gpu : gpus) uuids.push_back(gpu.source->capability().id.uuid);
  if (!std::exchange(programs_.loaded, true))
    programs_.kept = writer_->post([](UsageStore& store) { return store.programs(); });
  // Where that cannot be written now it is with the first rows.
  writer_->post([now = clock_.wall_now(), uuids = std::move(uuids)](UsageStore& store) {
    (void)store.begin(now, uuids).ok();
  });
}

// Returns whether the programs that an earlier run has kept were read, or are waited for no longer.
// Those that come later serve the processes that begin after them.
bool AttributionService::has_programs() {
  if (!programs_.kept.valid()) return true;
  const Instant now = clock_.now();
  if (!programs_.asked) programs_.asked = now;
  if (!is_ready(programs_.kept)) return now - *programs_.asked >= kProgramsPatience;
  const auto kept = programs_.kept.get();
  if (kept.ok())
    for (const auto& [product, programs] : *kept) programs_of(product)->load(programs);
  return true;
}

std::shared_ptr<ProgramMemory> AttributionService::programs_of(const std::string& product) {
  auto& memory = programs_.by_product[product];
  if (memory == nullptr) memory = std::make_shared<ProgramMemory>();
  return memory;
}

// Since they were last written.
ProgramsByProduct AttributionService::changed_programs() {
  ProgramsByProduct out;
  for (const auto& [product, memory] : programs_.by_product) {
    std::map<ProgramId, ProgramWatts> now;
    const auto& before = programs_.written[product];
    for (const ProgramWatts& one : memory->programs()) {
      const auto written = before.find(one.id);
      if (written == before.end() || written->second != one) out[product].push_back(one);
      now.emplace(one.id, one);
    }
    programs_.written[product] = std::move(now);
  }
  return out;
}

void AttributionService::begin_writing(Last last) {
  const bool ends = last == Last::yes && run_begun_;
  if (writer_ == nullptr || writing_.valid() || (pending_.empty() && !ends)) return;
  const Instant now = clock_.now();
  ProgramsByProduct programs;
  if (ends || now >= programs_.next_write.value_or(now)) {
    programs = changed_programs();
    programs_.next_write = now + kKeepProgramsEvery;
  }
  const bool tidy = (!tidied_ || now - *tidied_ >= kTidyEvery) && rules_.has_value();
  if (tidy) tidied_ = now;
  writing_ =
      writer_->post([rows = std::make_shared<UsageRows>(pending_.take()), wall = clock_.wall_now(),
                     ran = now - made_, ends, programs = std::move(programs),
                     keep = tidy ? std::optional(rules_->keep) : std::nullopt](UsageStore& store) {
        Written out{.added = rows->empty() ? Result<void>() : store.add(*rows, wall, ran),
                    .rows = rows};
        if (out.added.ok() && keep) (void)store.tidy(*keep).ok();  // again in an hour
        if (!programs.empty()) out.kept_programs = out.added.ok() && store.keep(programs).ok();
        if (out.added.ok() && ends) (void)store.end().ok();
        return out;
      });
}

// What was not written is tried again with the next.
void AttributionService::collect_written() {
  if (!is_ready(writing_)) return;
  Written written = writing_.get();
  const bool failed = !written.added.ok();
  if (failed) pending_.add(std::move(*written.rows));
  if (failed && !write_failed_)
    options_.log.error("what was used is not kept: " + written.added.error().message);
  if (!written.kept_programs) programs_.written.clear();  // all of them are written again
  write_failed_ = failed;
}

void AttributionService::stop() {
  const auto wait = [&] {
    if (writing_.valid()) writing_.wait_for(StoreWriter<UsageStore>::kEndPatience);
    collect_written();
  };
  wait();
  end_savings();
  begin_writing(Last::yes);
  run_begun_ = false;  // it may go on, as after a pause
  wait();
}

std::vector<std::shared_ptr<const AttributionPicture>> AttributionService::pictures() {
  std::vector<std::shared_ptr<const AttributionPicture>> out;
  for (const auto& attributed : gpus_) {
    if (attributed->picture == nullptr)
      attributed->picture = std::make_shared<const AttributionPicture>(attributed->gpu.picture());
    out.push_back(attributed->picture);
  }
  return out;
}

}  // namespace derate
