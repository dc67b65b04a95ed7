// One figure, one value: what a worker on virtual time says of savings and promises in its status,
// metrics, events, history and bills agrees in every state, and over restarts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "api/requests.h"
#include "api/saved_view.h"
#include "base/test_exposition.h"
#include "house.h"
#include "service/metrics/metric_catalogue.h"
#include "service/records/event_log.h"
#include "service/records/history_queries.h"
#include "store/usage_bill.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kBoards = 2;

class SurfacesHouse : public House {
 public:
  SurfacesHouse() : House(kBoards) {
    attribution.file = usage;
    attribution.where = BackgroundWorker::Where::at_once;
    attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
      TenantNames out;
      for (const GpuProcess& process : tenancy.processes) {
        NamedTenant tenant{"pid:" + std::to_string(process.pid), {}};
        tenant.labels.pid = process.pid;
        tenant.labels.user = process.pid % 2 == 0 ? "alice" : "bob";
        out.processes.push_back(tenant);
      }
      return out;
    };
    for (int gpu = 0; gpu < kBoards; ++gpu) {
      person(gpu, 10 + gpu, 1000);
      work(gpu, "GeMM");
    }
    governed_.govern = true;
    start(governed_);
  }

  // The next happening, by its number.
  void happen(int what, int gpu) {
    auto& bounds = worker->fleet().bounds();
    GpuTrouble& fault = trouble(gpu);
    switch (what) {
      case 0:
        return bounds.put(uuid_of(gpu), {.source = "budget", .who = "", .why = "", .most = 900});
      case 1:
        return bounds.withdraw(uuid_of(gpu), "budget");
      case 2:
        fault.faults.no_permission = !fault.faults.no_permission;
        return;
      case 3:
        fault.faults.gpu_lost = !fault.faults.gpu_lost;
        return;
      case 4:
        return sim(gpu).stop();
      case 5:
        return work(gpu, "BWtest");
      case 6:
        return work(gpu, "GeMM");
      case 7:
        return set(gpu, R"("policy":"assure","set":["delta=0.05"])");
      case 8:
        return set(gpu, R"("policy":"assure")");
      case 9:
        return set(gpu, R"("policy":"assure","dry_run":true)");
      case 10:
        return set(gpu, R"("policy":"efficient-fix")");
      case 11:
        (void)ask(fmt::format(R"({{"command":"release","gpus":"{}"}})", gpu));
        return;
      case 12:
        return begin_again();
      default:
        (void)ask(R"({"command":"pause"})");
        run(5s);
        (void)ask(R"({"command":"resume"})");
    }
  }
  static constexpr int kHappenings = 14;

  // Nothing is governed at the end, so that the last snapshot has all that was saved.
  void end() {
    for (int gpu = 0; gpu < kBoards; ++gpu)
      (void)ask(fmt::format(R"({{"command":"release","gpus":"{}"}})", gpu));
    run(3s);
    (void)worker->stop().ok();
    for (const auto& gpu : worker->board().latest()->gpus) add_up(gpu.totals);
    for (const auto& gpu : worker->board().latest()->away) add_up(gpu.totals);
  }

  std::string usage = folder + "/state/usage.db";
  SavingSums saved;  // of all workers that have ended

 private:
  void set(int gpu, const char* what) {
    (void)ask(fmt::format(R"({{"command":"policy-set","gpus":"{}",{}}})", gpu, what));
  }
  void begin_again() {
    end();
    start(governed_);
  }
  void add_up(const std::optional<GpuTotals>& totals) {
    if (totals && totals->saving) saved.add(saving_sums(*totals->saving));
  }
  Settings governed_;
};

double number(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : NAN;
}
bool is_near(double a, double b, double within = 1e-6) {
  return (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= within * std::max(1.0, std::abs(b));
}
std::string text_of(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_string() ? at->get<std::string>() : "";
}

// Surfaces that differ, as sentences.
struct Contradictions {
  std::vector<std::string> all;

  void unless(bool holds, const std::string& what) {
    if (!holds) all.push_back(what);
  }
  void unless_near(double a, double b, const std::string& what, double within = 1e-6) {
    unless(is_near(a, b, within), fmt::format("{}: {} and {}", what, a, b));
  }
};

// The state that the metrics have: its word; empty: none. More than one is a contradiction.
std::string state_of(const Exposition& read, const std::string& uuid) {
  std::string out;
  const auto at = read.samples.find("derate_gpu_promise_state");
  if (at == read.samples.end()) return out;
  for (const auto& sample : at->second)
    if (sample.labels.at("uuid") == uuid && sample.value == 1) out += sample.labels.at("state");
  return out;
}

// A part that is governed is no more than the whole, and the share is of the whole.
void check_saved(const Json& saved, const char* where, Contradictions& out) {
  const double used = number(saved, "energy_joules"), joules = number(saved, "saved_joules");
  out.unless(number(saved, "governed_joules") <= used * (1 + 1e-9),
             fmt::format("{}: more is governed than used", where));
  const double share = std::isnan(joules) ? NAN : joules / (used + joules);
  out.unless_near(number(saved, "energy_saving_ratio"), share, fmt::format("{}: share", where));
}

// Of one GPU: its promise in status, as state.json and /v1/status have it, and in /metrics.
void check_promise(const Json& gpu, const Exposition& read, Contradictions& out) {
  const std::string uuid = text_of(gpu, "uuid"), state = text_of(gpu, "promise");
  const auto metric = [&](const char* name) {
    return read.find(name, {{"uuid", uuid}}).value_or(NAN);
  };
  const std::string counted = state_of(read, uuid);
  out.unless(counted == (state == "not known" ? "not_known" : state),
             fmt::format("promise is '{}' and '{}'", state, counted));
  out.unless(state.empty() || gpu.contains("promised_performance_ratio"), "a state of no promise");
  const bool below = state == "below" || state == "broken";
  const double below_s = number(gpu, "promise_below_seconds");
  out.unless(below != std::isnan(below_s), fmt::format("{} for {} s", state, below_s));
  if (below)
    out.unless_near(metric("derate_gpu_promise_below_seconds"), below_s, "below for seconds");
  if (below) out.unless((state == "broken") == (below_s >= 30), "broken is below for 30 s");
  out.unless(text_of(gpu, "reason").find("keeps the promise") == std::string::npos,
             "a reason judges the promise");

  const std::string attention = text_of(gpu, "attention");
  out.unless(!attention.empty() == (metric("derate_gpu_needs_attention") == 1),
             fmt::format("attention '{}' and {}", attention, metric("derate_gpu_needs_attention")));
  out.unless(state != "broken" || !attention.empty(), "a broken promise needs attention");
  out.unless(attention != "below its promise" || state == "broken", "attention without a reason");
}

void check_savings(const Json& gpu, const Exposition& read, Contradictions& out) {
  const std::string uuid = text_of(gpu, "uuid");
  const auto metric = [&](const char* name) {
    return read.find(name, {{"uuid", uuid}}).value_or(NAN);
  };
  if (!gpu.contains("saved")) return;
  const Json& saved = gpu["saved"];
  check_saved(saved, "status", out);
  for (const auto& [name, key] :
       {std::pair("derate_gpu_saved_energy_joules", "saved_joules"),
        std::pair("derate_gpu_saved_energy_ratio", "energy_saving_ratio"),
        std::pair("derate_gpu_saved_energy_low_ratio", "energy_saving_low_ratio"),
        std::pair("derate_gpu_saved_energy_high_ratio", "energy_saving_high_ratio")})
    out.unless_near(metric(name), number(saved, key), name);
  const double counted = metric("derate_gpu_energy_joules_total");
  if (!std::isnan(counted))
    out.unless_near(std::max(counted, number(saved, "governed_joules")),
                    number(saved, "energy_joules"), "energy used");
  // Counters are at least what the estimate is now.
  const double governed = metric("derate_gpu_governed_energy_joules_total");
  out.unless(std::isnan(governed) || governed >= number(saved, "governed_joules") - 0.01,
             "the governed energy's counter is behind");
}

// A promise is broken as the last event of it says.
void check_events(const Snapshot& now, const std::vector<Event>& events, Contradictions& out) {
  for (const GpuSnapshot& gpu : now.gpus) {
    bool broken = false;
    for (const Event& event : events) {
      if (event.kind == EventKind::started) broken = false;
      if (event.gpu != gpu.id.uuid) continue;
      if (event.kind == EventKind::promise_broken) broken = true;
      if (event.kind == EventKind::promise_kept || event.kind == EventKind::governed)
        broken = false;
    }
    const PromiseState state = gpu.promise_now.state;
    out.unless(state != PromiseState::broken || broken, "broken without an event");
    out.unless(state != PromiseState::kept || !broken, "kept after the event that it is broken");
  }
}

void check_state(SurfacesHouse& house, const std::vector<Event>& events, Contradictions& out) {
  const Snapshot now = *house.worker->board().latest();
  const Json status = snapshot_json(now);
  const MetricsOptions options{.format = MetricFormat::openmetrics, .now = house.clock.now()};
  const Exposition read = read_exposition(metrics_text(now, options), options.format);
  out.unless(read.wrong.empty(), read.wrong);
  double used = 0, saved = 0;
  for (const Json& gpu : status["gpus"]) {
    check_promise(gpu, read, out);
    check_savings(gpu, read, out);
    if (!gpu.contains("saved")) continue;
    used += number(gpu["saved"], "energy_joules");
    const double joules = number(gpu["saved"], "saved_joules");
    if (!std::isnan(joules)) saved += joules;
  }
  if (status.contains("saved")) {
    check_saved(status["saved"], "status of all", out);
    out.unless_near(number(status["saved"], "energy_joules"), used, "used by all");
    const double all = number(status["saved"], "saved_joules");
    if (!std::isnan(all)) out.unless_near(all, saved, "saved by all");
  }
  check_events(now, events, out);
}

SavingsAnswer savings_of(const SurfacesHouse& house, const char* by) {
  const auto answer = answer_savings(house.history_file, {.by = by, .from = "1970-01-01T00:00Z"},
                                     house.clock.wall_now() + 1h);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
  return answer.ok() ? *answer_of<SavingsAnswer>(*answer) : SavingsAnswer{};
}

// After the end: the history's answers, the bill and the sums of all workers.
void check_accounts(const SurfacesHouse& house, Contradictions& out) {
  const SavingsAnswer answer = savings_of(house, "gpu");
  double used = 0;
  for (const SavingsLineView& line : answer.lines) {
    check_saved(saved_json(line.sum), "savings", out);
    double of_hours = 0;
    for (const double each : line.energy_joules) of_hours += each;
    out.unless_near(line.sum.energy_joules, std::max(of_hours, line.sum.governed_joules),
                    "sum of hours");
    used += of_hours;
  }
  out.unless(answer.total.energy_joules >= used - 0.01, "the total is less than its lines");
  check_saved(saved_json(answer.total), "savings of all", out);
  const SavingsAnswer policies = savings_of(house, "policy");
  out.unless_near(policies.total.governed_joules, answer.total.governed_joules, "by policy");
  out.unless_near(policies.total.energy_saving_ratio.value_or(NAN),
                  answer.total.energy_saving_ratio.value_or(NAN), "share by policy");

  const double kept = static_cast<double>(house.saved.at_highest_mj - house.saved.energy_mj) / 1000;
  const double told = answer.total.saved_joules.value_or(0);
  out.unless(!answer.total.saved_joules || std::abs(told - kept) <= 1,
             fmt::format("history {} J, totals of all workers {} J", told, kept));
  const Bill bill =
      make_bill(*read_usage(house.usage, WallTime{}, house.clock.wall_now() + 1h), BillBy::user);
  const auto known = bill_saving(bill.savings);
  if (!known) return;
  const double billed = (known->saving.energy_at_highest - known->saving.energy).value();
  out.unless(std::abs(billed - told) <= 1, fmt::format("bill {} J, history {} J", billed, told));
}

// Twenty worlds of ten random states each; each world has its own seed.
TEST(Surfaces, AgreeInEveryStateAndOverRestarts) {
  constexpr std::array kTimes{1s, 3s, 12s, 35s, 70s, 120s};
  std::map<PromiseState, int> seen;
  int states = 0;
  for (unsigned world = 0; world < 20; ++world) {
    std::mt19937 random(world);
    const auto one_of = [&](std::size_t count) { return static_cast<int>(random() % count); };
    SurfacesHouse house;
    std::vector<Event> events;
    std::int64_t last = 0;
    std::string story;
    for (int step = 0; step < 10; ++step, ++states) {
      const int what = one_of(SurfacesHouse::kHappenings), gpu = one_of(kBoards);
      const auto time = kTimes[static_cast<std::size_t>(one_of(kTimes.size()))];
      story += fmt::format(" {}/{}/{}s", what, gpu, time.count());
      house.happen(what, gpu);
      house.run(time);
      const auto page = house.worker->events().after(last, 10'000);
      events.insert(events.end(), page.events.begin(), page.events.end());
      last = page.last;
      Contradictions found;
      check_state(house, events, found);
      for (const auto& each : house.worker->board().latest()->gpus) ++seen[each.promise_now.state];
      EXPECT_EQ(found.all, std::vector<std::string>()) << "world " << world << ":" << story;
    }
    house.end();
    Contradictions found;
    check_accounts(house, found);
    EXPECT_EQ(found.all, std::vector<std::string>()) << "world " << world << ":" << story;
  }
  EXPECT_EQ(states, 200);
  for (const auto& [state, count] : seen) fmt::print("{}: {}\n", to_string(state), count);
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(kPromiseStates)) << "each state was there";
}

}  // namespace
}  // namespace derate::cli
