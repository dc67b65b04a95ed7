#include "attrib/program_memory.h"

#include <algorithm>
#include <cmath>

#include "attrib/features.h"

namespace derate {
namespace {

// Before more is known, processes of one program differ by that part of their watts; it counts as
// so many processes.
constexpr double kSpread = 0.25, kSpreadRuns = 2;
// A process that was seen less than that says little: of its own watts, 0..1, and s.
constexpr double kLeastKnown = 0.5, kWholeRunS = 20;
constexpr double kLeastRuns = 0.3;  // of a program, to expect anything
constexpr double kOwnSpread = 0.1;  // of its watts: a process that comes back does much the same
// So many processes say enough: a program that changes is followed.
constexpr double kMostRuns = 20;

bool can_be(const ProgramWatts& one) {
  const auto sound = [](double value, double most) {
    return std::isfinite(value) && value >= 0 && value <= most;
  };
  return !one.id.program.empty() && sound(one.runs, kMostRuns) && one.runs > 0 &&
         sound(one.mean_w, kMostBoardWatts) &&
         sound(one.spread_w2, kMostBoardWatts * kMostBoardWatts);
}

}  // namespace

double ProgramMemory::Run::weight() const {
  return seconds > 0 ? known / seconds * std::min(1.0, seconds / kWholeRunS) : 0;
}

double ProgramMemory::Run::variance() const {
  return std::max(0.0, square / seconds - mean() * mean());
}

void ProgramMemory::add(Program& program, const Run& run) {
  const double weight = run.weight();
  if (weight <= 0) return;
  const double runs = std::min(program.runs, kMostRuns - weight), all = runs + weight;
  const double apart = run.mean() - program.mean;
  program.spread2 =
      (runs * program.spread2 + weight * run.variance() + runs * weight / all * apart * apart) /
      all;
  program.mean += weight / all * apart;
  program.runs = all;
}

// Of few processes the spread is mostly assumed, and their mean may be off by as much.
std::optional<Belief> ProgramMemory::expected_of(const Program& program) {
  if (program.runs < kLeastRuns) return std::nullopt;
  const double spread2 =
      (program.runs * program.spread2 + kSpreadRuns * std::pow(kSpread * program.mean, 2)) /
      (program.runs + kSpreadRuns);
  return Belief{program.mean, std::sqrt(spread2 * (1 + 1 / program.runs))};
}

void ProgramMemory::load(const std::vector<ProgramWatts>& kept) {
  for (const ProgramWatts& one : kept)
    if (can_be(one))
      programs_.try_emplace(one.id, Program{one.runs, one.mean_w, one.spread_w2, ++seen_});
}

std::vector<ProgramWatts> ProgramMemory::programs() const {
  std::map<ProgramId, Program> all = programs_;
  for (const auto& [key, run] : runs_)
    if (run.weight() > 0) add(all[run.id], run);
  std::vector<ProgramWatts> out;
  for (const auto& [id, program] : all)
    out.push_back({id, program.runs, program.mean, program.spread2});
  return out;
}

// Of a process that is new, by those that ended and those that run.
std::optional<Belief> ProgramMemory::expected_of(const ProgramId& id) const {
  const auto ended = programs_.find(id);
  Program program = ended != programs_.end() ? ended->second : Program();
  for (const auto& [key, run] : runs_)
    if (run.id == id) add(program, run);
  return expected_of(program);
}

void ProgramMemory::foretell(const std::string& gpu, AttribTick& tick) const {
  for (TenantTick& tenant : tick.tenants) {
    if (!tenant.program) continue;
    const auto at = runs_.find({gpu, tenant.key});
    if (at == runs_.end()) {
      tenant.expected_w = expected_of(*tenant.program);
      continue;
    }
    const Run& run = at->second;
    tenant.expected_w = run.expected;
    if (run.weight() >= kLeastKnown)
      tenant.expected_w = {run.mean(),
                           std::hypot(kOwnSpread * run.mean(), std::sqrt(run.variance()))};
  }
}

void ProgramMemory::learn(const std::string& gpu, const AttribTick& tick,
                          const PowerEstimate& estimate) {
  std::map<std::pair<std::string, std::string>, Run> here;
  for (std::size_t i = 0; i < tick.tenants.size(); ++i) {
    const TenantTick& tenant = tick.tenants[i];
    if (!tenant.program) continue;
    const auto before = runs_.find({gpu, tenant.key});
    Run& run = here[{gpu, tenant.key}];
    run = before != runs_.end() ? before->second
                                : Run{.id = *tenant.program, .expected = tenant.expected_w};
    if (before != runs_.end()) runs_.erase(before);
    const auto& working = estimate.tenants[i].working_w;
    if (!working || clean_share(tenant.sm_utilisation) <= 0) continue;
    const auto& expected = run.expected;
    const double known = expected
                             ? 1 - std::pow(working->sd / std::max(1e-3, expected->sd), 2)
                             : 1 - estimate.tenants[i].working_prior.value_or(Fraction(1)).value();
    if (known < kLeastKnown) continue;
    // Less the expectation: this its own ticks have shown.
    const double own =
        expected ? (working->mean - (1 - known) * expected->mean) / known : working->mean;
    const double watts = std::clamp(own, 0.0, kMostBoardWatts), time = seconds(tick.length);
    run.seconds += time;
    run.sum += time * watts;
    run.square += time * watts * watts;
    run.known += time * known;
  }
  for (auto one = runs_.lower_bound({gpu, ""}); one != runs_.end() && one->first.first == gpu;
       one = runs_.erase(one))
    end(one->second);
  runs_.merge(here);
}

void ProgramMemory::end(const Run& run) {
  if (run.weight() <= 0) return;
  Program& program = programs_[run.id];
  add(program, run);
  program.seen = ++seen_;
  if (programs_.size() <= kMost) return;
  programs_.erase(
      std::min_element(programs_.begin(), programs_.end(),
                       [](const auto& a, const auto& b) { return a.second.seen < b.second.seen; }));
}

}  // namespace derate
