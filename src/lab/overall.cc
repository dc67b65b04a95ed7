#include "lab/overall.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "lab/figures.h"
#include "lab/known_apps.h"

namespace derate {
namespace {

// A job against its baseline's, by what it has in common with other policies' jobs.
using JobPlace = std::tuple<std::string, std::string, std::pair<int, int>>;  // chip, cell, which
struct Pair {
  Relative relative;
  bool is_judged = false;
};
using Pairs = std::map<std::string, std::map<JobPlace, Pair>>;  // by application

Pairs pairs_of(const Stage& stage, const std::map<std::string, Repetitions>& jobs,
               const std::map<std::string, Repetitions>& baseline) {
  Pairs out;
  for (const auto& [app, mine] : jobs) {
    const auto full = baseline.find(app);
    if (full == baseline.end()) continue;
    for (const auto& [repetition, stored] : mine) {
      const auto other = full->second.find(repetition);
      if (other == full->second.end() || !stored->job.error.empty() ||
          !other->second->job.error.empty())
        continue;
      out[app][{stage.chip, stage.cell.text(), repetition}] = {
          relative_to(other->second->job, stored->job), other->second->job.time >= kShortestJudged};
    }
  }
  return out;
}

// Of each policy of the plan, the baseline's left empty.
std::vector<Pairs> all_pairs(const Plan& plan, std::span<const StoredJob> jobs) {
  std::vector<Pairs> out(plan.policies.size());
  for (const Stage& stage : plan.stages) {
    std::map<std::string, std::map<std::string, Repetitions>> here;
    const std::string cell = stage.cell.text();
    for (const StoredJob& one : jobs)
      if (one.session.chip == stage.chip && one.session.cell == cell)
        add_job(here[one.session.policy][one.job.app], one);
    const auto& baseline = here[plan.policies.front().label];
    for (std::size_t i = 1; i < plan.policies.size(); ++i)
      for (auto& [app, pairs] : pairs_of(stage, here[plan.policies[i].label], baseline))
        out[i][app].merge(pairs);
  }
  return out;
}

OverallResult result_of(const Plan& plan, const PolicyChoice& policy, const Pairs& pairs) {
  OverallResult out;
  out.label = policy.label;
  out.delta = promised_delta(plan, policy);
  std::set<std::string> known;
  for (const Stage& stage : plan.stages)
    for (std::string& app : known_apps(policy, stage.chip, stage.apps))
      known.insert(std::move(app));
  out.known_apps = known.size();
  out.apps = pairs.size();
  Samples saving, loss, gain;
  for (const auto& [app, of_app] : pairs) {
    saving.emplace_back(), loss.emplace_back(), gain.emplace_back();
    for (const auto& [place, pair] : of_app) {
      saving.back().push_back(pair.relative.saving());
      loss.back().push_back(pair.relative.loss);
      gain.back().push_back(pair.relative.gain);
      out.worst_job_loss =
          out.jobs == 0 ? pair.relative.loss : std::max(out.worst_job_loss, pair.relative.loss);
      ++out.jobs;
      out.judged += pair.is_judged ? 1 : 0;
      out.broken += pair.is_judged && pair.relative.loss > out.delta ? 1 : 0;
    }
  }
  if (out.jobs == 0) return out;
  out.saving = bootstrapped(saving);
  out.loss = bootstrapped(loss);
  out.gain = bootstrapped(gain);
  return out;
}

PairedDifference difference_of(const Pairs& first, const Pairs& other, const std::string& than) {
  PairedDifference out{than, 0, 0, {}, {}};
  Samples saving, loss;
  for (const auto& [app, pairs] : first) {
    const auto theirs = other.find(app);
    if (theirs == other.end()) continue;
    std::vector<double> savings, losses;
    for (const auto& [place, pair] : pairs) {
      const auto same = theirs->second.find(place);
      if (same == theirs->second.end()) continue;
      savings.push_back(pair.relative.saving() - same->second.relative.saving());
      losses.push_back(pair.relative.loss - same->second.relative.loss);
    }
    if (savings.empty()) continue;
    out.jobs += static_cast<int>(savings.size());
    saving.push_back(std::move(savings));
    loss.push_back(std::move(losses));
  }
  out.apps = saving.size();
  if (out.jobs == 0) return out;
  out.saving = bootstrapped(saving);
  out.loss = bootstrapped(loss);
  return out;
}

constexpr const char* kDefault = "assure";

// Place in plan.policies. Empty: nothing ran.
std::optional<std::size_t> headline_of(const Plan& plan, const std::vector<OverallResult>& all) {
  std::optional<std::size_t> best;
  const auto is_better = [&](const OverallResult& one, const OverallResult& than) {
    const bool kept = one.broken == 0, kept_than = than.broken == 0;
    return kept != kept_than ? kept : one.gain.mean > than.gain.mean;
  };
  std::optional<std::size_t> own;
  for (std::size_t i = 1; i < plan.policies.size(); ++i) {
    const OverallResult& one = all[i - 1];
    if (one.jobs == 0) continue;
    if (!best || is_better(one, all[*best - 1])) best = i;
    if (plan.policies[i].info->name != std::string_view(kDefault)) continue;
    // Of several the first; one that knows fewer of the applications comes before it, if both
    // promise the same.
    if (!own || (one.delta == all[*own - 1].delta && one.known_apps < all[*own - 1].known_apps))
      own = i;
  }
  return own ? own : best;
}

}  // namespace

Overall overall(const Plan& plan, std::span<const StoredJob> jobs) {
  Overall out;
  const std::vector<Pairs> pairs = all_pairs(plan, jobs);
  for (std::size_t i = 1; i < plan.policies.size(); ++i)
    out.policies.push_back(result_of(plan, plan.policies[i], pairs[i]));
  const auto first = headline_of(plan, out.policies);
  if (!first) return out;
  out.headline = plan.policies[*first].label;
  for (std::size_t i = 1; i < plan.policies.size(); ++i)
    if (i != *first && out.policies[i - 1].jobs > 0)
      out.differences.push_back(difference_of(pairs[*first], pairs[i], plan.policies[i].label));
  return out;
}

}  // namespace derate
