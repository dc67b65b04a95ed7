#include "lab/tenants/attribution.h"

#include <algorithm>
#include <cmath>

#include "attrib/tick_source.h"
#include "attrib/training.h"
#include "base/add_fields.h"
#include "lab/tenants/tenant_training.h"

namespace derate {
namespace {

TenantKeys keys_of(const Tenancy& seen, const TenantWorld& world) {
  TenantKeys keys;
  for (const GpuInstance& instance : seen.instances)
    keys.instances.push_back(world.key_of_instance(instance.id));
  for (const GpuProcess& process : seen.processes)
    keys.processes.push_back(world.key_of_process(process.pid));
  return keys;
}

// What one method made of one run.
struct Account {
  AttributionScore score;
  std::map<std::string, TenantScore> tenants;
  std::map<std::string, double> sigma_j;
  std::map<std::string, TenantScore> bill;  // of the whole run
};

struct EstimatedEnergy {
  double joules = 0;
  std::optional<double> sigma_j;
};

std::map<std::string, EstimatedEnergy> above_base(const Split& split) {
  std::map<std::string, EstimatedEnergy> out;
  for (const TenantEnergy& tenant : split.tenants) {
    EstimatedEnergy& estimated = out[tenant.key];
    estimated.joules = static_cast<double>(tenant.context_mj + tenant.dynamic_mj) / 1000;
    if (tenant.sigma_mj) estimated.sigma_j = static_cast<double>(*tenant.sigma_mj) / 1000;
  }
  return out;
}

void add_exactness(const Split& split, AttributionScore& score) {
  std::int64_t parts = split.unallocated_mj;
  for (const TenantEnergy& tenant : split.tenants) parts += tenant.total_mj();
  score.unsettled_mj += std::abs(split.board_mj - parts);
  ++score.ticks;
}

void add_tenant(const std::string& key, const EstimatedEnergy& estimated, double truth,
                double length, Account& account) {
  AttributionScore& score = account.score;
  const double off_w = (estimated.joules - truth) / length, true_w = truth / length;
  score.squared_w += off_w * off_w;
  ++score.readings;
  if (true_w > 15) {
    score.absolute_relative += std::abs(off_w) / true_w;
    ++score.above_15_w;
  }
  TenantScore& tenant = account.tenants[key];
  tenant.estimated_j += estimated.joules;
  tenant.true_j += truth;
  if (estimated.sigma_j && true_w > 0) {
    ++score.banded;
    account.sigma_j[key] += *estimated.sigma_j;
    score.band_j += kBand90 * *estimated.sigma_j;
    score.banded_j += truth;
    if (std::abs(estimated.joules - truth) <= kBand90 * *estimated.sigma_j) ++score.covered;
  }
}

// `age_s` at the tick's end.
void add_split(const Split& split, const TenantWorld& world, double age_s, Account& account) {
  AttributionScore& score = account.score;
  add_exactness(split, score);
  (age_s <= 60    ? score.minute
   : age_s <= 300 ? score.five_minutes
                  : score.later)
      .add(misattributed(split, world.truth()));
  const auto estimated = above_base(split);
  for (const auto& [key, energy] : estimated) account.bill[key].estimated_j += energy.joules;
  for (const TenantTruth& truth : world.truth())
    account.bill[truth.key].true_j += truth.above_base.value();
  if (age_s <= 300) return;
  if (split.unexplained) score.unexplained += split.unexplained->value(), ++score.foretold;
  for (const TenantTruth& truth : world.truth()) {
    const auto found = estimated.find(truth.key);
    add_tenant(truth.key, found != estimated.end() ? found->second : EstimatedEnergy{},
               truth.above_base.value(), seconds(split.length), account);
  }
}

void add_twins(const Account& account, AttributionScore& score) {
  const TenantScore& one = account.tenants.at("instance 1");
  const TenantScore& other = account.tenants.at("instance 2");
  // The twins' loads differ from moment to moment: what counts is how differently they are judged.
  const double difference = one.estimated_j / one.true_j - other.estimated_j / other.true_j;
  score.twins = std::abs(difference);
  const auto sigma = [&](const char* key) {
    const auto found = account.sigma_j.find(key);
    return found != account.sigma_j.end() ? found->second : 0.0;
  };
  const double band =
      kBand90 * std::hypot(sigma("instance 1") / one.true_j, sigma("instance 2") / other.true_j);
  score.twins_in_band = *score.twins <= band;
}

AttributionScore finished(Account account, const AttributionRun& run) {
  AttributionScore score = std::move(account.score);
  std::optional<double> worst;
  for (const auto& [key, tenant] : account.tenants)
    if (tenant.true_j > 15 * (seconds(run.length) - 300))
      worst = std::max(worst.value_or(0), std::abs(tenant.estimated_j / tenant.true_j - 1));
  if (worst) score.worst.push_back(*worst);
  for (const auto& [key, tenant] : account.bill)
    score.bill.add({std::abs(tenant.estimated_j - tenant.true_j) / 2, tenant.true_j});
  if (score.later.share()) score.later_runs.push_back(*score.later.share());
  if (run.scenario->twins) {
    add_twins(account, score);
    score.null_w = account.tenants.at("instance 4").estimated_j / (seconds(run.length) - 300);
  }
  return score;
}

}  // namespace

StretchScore misattributed(const Split& split, std::span<const TenantTruth> truth) {
  auto estimated = above_base(split);
  StretchScore out;
  for (const TenantTruth& tenant : truth) {
    const double mine = estimated[tenant.key].joules;
    out.wrong_j += std::abs(mine - tenant.above_base.value()) / 2;
    out.true_j += tenant.above_base.value();
    estimated.erase(tenant.key);
  }
  for (const auto& [key, stray] : estimated) out.wrong_j += stray.joules / 2;
  return out;
}

std::optional<double> AttributionScore::rmse_w() const {
  if (readings == 0) return std::nullopt;
  return std::sqrt(squared_w / static_cast<double>(readings));
}

std::optional<double> AttributionScore::mape() const {
  if (above_15_w == 0) return std::nullopt;
  return absolute_relative / static_cast<double>(above_15_w);
}

std::optional<double> AttributionScore::coverage() const {
  if (banded == 0) return std::nullopt;
  return static_cast<double>(covered) / static_cast<double>(banded);
}

std::optional<double> AttributionScore::band_width() const {
  if (banded == 0 || banded_j <= 0) return std::nullopt;
  return band_j / banded_j;
}

std::optional<double> AttributionScore::mean_unexplained() const {
  if (foretold == 0) return std::nullopt;
  return unexplained / static_cast<double>(foretold);
}

void AttributionScore::add(const AttributionScore& other) {
  bill.add(other.bill);
  minute.add(other.minute);
  five_minutes.add(other.five_minutes);
  later.add(other.later);
  worst.insert(worst.end(), other.worst.begin(), other.worst.end());
  later_runs.insert(later_runs.end(), other.later_runs.begin(), other.later_runs.end());
  using Score = AttributionScore;
  add_fields(*this, other, &Score::squared_w, &Score::absolute_relative, &Score::readings,
             &Score::above_15_w, &Score::banded, &Score::covered, &Score::band_j, &Score::banded_j,
             &Score::unexplained, &Score::foretold, &Score::unsettled_mj, &Score::ticks);
  null_w = std::max(null_w, other.null_w);
  if (other.twins) twins = std::max(twins.value_or(0), *other.twins);
  twins_in_band = twins_in_band && other.twins_in_band;
}

namespace {

using Maker = std::unique_ptr<SplitMethod> (*)(const BoardFacts&, std::span<const TrainingRun>);

JudgedMethod offline(std::string name, Maker maker, std::vector<TrainingRun> runs) {
  return {std::move(name),
          [maker, runs = std::move(runs)](const BoardFacts& facts, const TenantWorld&) {
            return maker(facts, runs);
          }};
}

std::string workload_now(const TenantWorld& world, std::string_view key) {
  for (const TenantTruth& truth : world.truth())
    if (truth.key == key) return truth.workload;
  return "";
}

// The true watts of a tenant alone, in the tick that was just read.
Watts alone_now(const TenantWorld& world, const std::string& key) {
  for (const TenantTruth& truth : world.truth())
    if (truth.key == key) return Watts(truth.alone.value());
  return Watts(0);
}

}  // namespace

Result<std::vector<JudgedMethod>> judged_methods(const TenantScenario& scenario) {
  const auto runs = TRY(profile_workloads(scenario));
  std::vector<JudgedMethod> out;
  for (const SplitMethodInfo& method : split_methods()) {
    if (method.make == nullptr) continue;
    const bool learns = std::string_view(method.name) == "online";
    out.push_back({method.name, [&method, learns](const BoardFacts& facts, const TenantWorld&) {
                     BoardFacts known = facts;
                     if (learns) known.base.reset(), known.context.reset();
                     return method.make(known);
                   }});
  }
  out.push_back(offline("offline-linear (4)", make_offline_linear, four_of(runs)));
  out.push_back(offline("offline-linear (all)", make_offline_linear, runs));
  out.push_back(offline("offline-trees (4)", make_offline_trees, four_of(runs)));
  out.push_back(offline("offline-trees (all)", make_offline_trees, runs));
  out.push_back({"workload-models", [runs](const BoardFacts& facts, const TenantWorld& world) {
                   return make_workload_models(facts, runs, [&world](std::string_view key) {
                     return workload_now(world, key);
                   });
                 }});
  out.push_back({"exact-curve", [](const BoardFacts& facts, const TenantWorld& world) {
                   return make_exact_curve(facts, [&world](const TenantTick& tenant, Megahertz) {
                     return alone_now(world, tenant.key);
                   });
                 }});
  return out;
}

BoardFacts true_board_facts(const SimChip& chip) {
  const double unused = chip.idle_power.at(chip.unused_clock);
  return {.chip = chip.name,
          .base = Watts(unused),
          .context = Watts(chip.idle_power.at(chip.sm_clocks.back()) - unused),
          .highest_clock = chip.sm_clocks.back()};
}

namespace {

// As NvmlDevice::tenancy() reads the energy counter of a dear driver.
class SeldomCounter {
 public:
  explicit SeldomCounter(double driver_cost)
      : every_(survey_counter_every(
            from_seconds(seconds(h200_cost(DriverCall::energy)) * driver_cost), true)) {}
  void pace(Sample& board) {
    if (last_ && board.time - read_at_ < every_) {
      board.energy = *last_;
      board.read_apart.push_back({Field::energy, read_at_, "sim"});
    } else if (board.energy) {
      last_ = *board.energy;
      read_at_ = board.time;
    }
  }

 private:
  Duration every_;
  std::optional<Joules> last_;
  Instant read_at_{};  // of `last_`
};

}  // namespace

Result<std::vector<AttributionScore>> judge(const AttributionRun& run,
                                            std::span<const JudgedMethod> methods) {
  const auto world = TRY(TenantWorld::create(*run.scenario, run.seed, run.length));
  BoardFacts facts = true_board_facts(world->chip());
  if (!run.scenario->known_chip) facts.chip = "unknown";
  std::vector<std::unique_ptr<SplitMethod>> made;
  for (const JudgedMethod& method : methods) made.push_back(method.make(facts, *world));
  std::vector<Account> accounts(methods.size());
  TickSource source;
  SeldomCounter counter(run.driver_cost);
  while (world->elapsed() < run.length) {
    auto seen = world->tick();
    for (const Sample& reading : world->readings()) source.watch(reading);
    if (!seen.ok()) continue;
    counter.pace(seen->board);
    const auto sourced = source.next(*seen, keys_of(*seen, *world));
    if (!sourced) continue;
    for (std::size_t i = 0; i < made.size(); ++i) {
      const PowerEstimate estimate = made[i]->step(sourced->tick);
      if (const auto split = allocate_energy(sourced->tick, estimate, IdleRule::unallocated))
        add_split(*split, *world, seconds(world->elapsed()), accounts[i]);
    }
  }
  std::vector<AttributionScore> out;
  for (Account& account : accounts) out.push_back(finished(std::move(account), run));
  return out;
}

}  // namespace derate
