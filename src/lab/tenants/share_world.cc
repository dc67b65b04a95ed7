#include "lab/tenants/share_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

namespace derate {
namespace {

constexpr double kStepS = 0.01;
constexpr double kNoiseW = 0.5;
constexpr double kTopMhz = 1980;
constexpr long kStepsATick = 100;
constexpr double kRestsS = 10;
// The power limit moves the clock by one step of 15 MHz at a time, down to this part of the
// highest.
constexpr double kClockStep = 15 / kTopMhz, kLeastClock = 0.2;
constexpr std::size_t kLimitSteps = 10;  // over whose mean power it decides

}  // namespace

ShareWorld::ShareWorld(ShareWorldSpec spec, std::uint64_t seed)
    : spec_(std::move(spec)), random_(seed * 7919 + 17), states_(spec_.processes.size()) {
  sample_ends_s_ = spec_.sample_s * std::uniform_real_distribution<double>(0, 1)(random_);
  sample_phase_ = std::uniform_real_distribution<double>(0, 1)(random_);
  for (std::size_t k = 0; k < states_.size(); ++k) {
    State& state = states_[k];
    state.begins_s = spec_.processes[k].begins_s, state.ends_s = spec_.processes[k].ends_s;
    state.wander = spec_.processes[k].wander_sd * std::normal_distribution<double>()(random_);
  }
}

double ShareWorld::uniform(const double (&between)[2]) {
  return std::uniform_real_distribution<double>(between[0], between[1])(random_);
}

std::string ShareWorld::key_of(std::size_t process) const {
  return fmt::format("process {} of {}", states_[process].life, process);
}

BoardFacts ShareWorld::facts() const {
  return {.chip = "H200", .highest_clock = Megahertz(kTopMhz)};
}

// It comes, ends, works and pauses.
void ShareWorld::live(std::size_t process) {
  const ShareProcess& is = spec_.processes[process];
  State& state = states_[process];
  if (state.here && now_s_ >= state.ends_s) {
    state.here = state.on = false;
    state.begins_s = is.comes_again_s > 0 ? now_s_ + is.comes_again_s : 1e18;
    state.ends_s = state.begins_s + is.ends_s - is.begins_s;
  }
  if (!state.here && now_s_ >= state.begins_s) {
    state = {.here = true,
             .life = state.life + 1,
             .wander = state.wander,

             .sampled_s = state.sampled_s,
             .credited_s = 0,
             .joules = 0,
             .ends_s = state.ends_s,
             .begins_s = state.begins_s};
    state.on = !is.parked;
    state.until_s = is.on_s[1] > 0 ? now_s_ + uniform(is.on_s) : 1e18;
  }
  if (!state.here || is.parked) return;
  if (now_s_ >= is.stops_s) state.on = false, state.until_s = 1e18;
  if (now_s_ < state.until_s) return;
  state.on = !state.on;
  state.until_s = now_s_ + uniform(state.on ? is.on_s : is.off_s);
}

void ShareWorld::move_watts(std::size_t process) {
  const ShareProcess& is = spec_.processes[process];
  State& state = states_[process];
  if (is.wander_sd > 0) {
    const double keep = std::exp(-kStepS / is.wander_s);
    state.wander = keep * state.wander + is.wander_sd * std::sqrt(1 - keep * keep) *
                                             std::normal_distribution<double>()(random_);
  }
  if (is.jump_s[1] > 0 && now_s_ >= state.factor_until_s) {
    state.factor = uniform(is.jump);
    state.factor_until_s = now_s_ + uniform(is.jump_s);
  }
}

bool ShareWorld::wants(std::size_t process) {
  constexpr double kCycleS[2] = {0.2, 0.6}, kBurst[2] = {0.7, 1.3};
  const ShareProcess& is = spec_.processes[process];
  State& state = states_[process];
  if (!state.on) return false;
  if (spec_.turn_s > 0) {
    const auto turn = static_cast<std::size_t>(now_s_ / spec_.turn_s);
    return turn % states_.size() == process;
  }
  if (is.demand >= 1) return true;
  if (state.left_s > 0) return true;
  if (now_s_ < state.gap_until_s) return false;
  const double cycle = uniform(kCycleS);
  state.left_s = is.demand * cycle * uniform(kBurst);
  state.gap_s = (1 - is.demand) * cycle;  // of the pause that follows
  return true;
}

void ShareWorld::limit_clock() {
  const std::size_t seen = std::min(late_.size(), kLimitSteps);
  const double mean_w = std::accumulate(late_.end() - static_cast<long>(seen), late_.end(), 0.0) /
                        static_cast<double>(std::max<std::size_t>(1, seen));
  allowed_clock_ += mean_w > spec_.power_limit_w ? -kClockStep : kClockStep;
  allowed_clock_ = std::clamp(allowed_clock_, kLeastClock, 1.0);
}

void ShareWorld::step() {
  std::vector<std::size_t> working;
  double contexts = 0, dynamic_w = 0;
  if (now_s_ >= clock_until_s_)
    clock_ = uniform(spec_.clock), clock_until_s_ = now_s_ + uniform(spec_.clock_s);
  limit_clock();
  const double clock = std::min(clock_, allowed_clock_);
  capped_steps_ += allowed_clock_ < clock_ ? 1 : 0;
  for (std::size_t k = 0; k < states_.size(); ++k) {
    live(k);
    move_watts(k);
    contexts += states_[k].here ? 1 : 0;
    if (wants(k)) working.push_back(k);
  }
  const double work_scale = std::pow(clock, spec_.work_exponent);
  const double context_w =
      contexts > 0 ? spec_.context_w * std::pow(clock, spec_.context_exponent) : 0;
  for (State& state : states_)
    if (state.here) state.joules += context_w / contexts * kStepS;
  for (const std::size_t k : working) {
    const ShareProcess& is = spec_.processes[k];
    State& state = states_[k];
    const double part = 1 / static_cast<double>(working.size());
    const double swing = 1 + is.swing * std::sin(2 * std::numbers::pi * (now_s_ / is.swing_s));
    const double watts = is.watts * std::exp(state.wander - is.wander_sd * is.wander_sd / 2) *
                         state.factor * swing * work_scale * part;
    dynamic_w += watts;
    state.joules += watts * kStepS;
    state.sampled_s += part * kStepS;
    state.worked_at_s = now_s_;
    if (is.demand < 1 && spec_.turn_s <= 0) {
      state.left_s -= part * kStepS;
      if (state.left_s <= 0) state.gap_until_s = now_s_ + state.gap_s;
    }
  }
  late_.push_back(spec_.base_w + context_w + dynamic_w);
  const auto lag = static_cast<std::size_t>(spec_.lag_s / kStepS);
  const double seen_w = late_[late_.size() > lag ? late_.size() - 1 - lag : 0];
  if (!spec_.part_time_sensor || steps_ % 10 < 2 || (steps_ % 10 == 2 && steps_ / 10 % 2 == 0))
    sensed_j_ += seen_w, sensed_s_ += 1;
  clock_sum_ += clock;
  ++steps_;
  now_s_ = static_cast<double>(steps_) * kStepS;
  if (now_s_ >= sample_ends_s_ - 1e-9) end_sample();
}

// All that was done in a sample counts as those processes' that it meets.
void ShareWorld::end_sample() {
  sample_ends_s_ += spec_.sample_s;
  double all = 0;
  for (const State& state : states_) all += state.sampled_s;
  for (int i = 0; i < spec_.credited && all > 0; ++i) {
    sample_phase_ += spec_.drift < 1 ? spec_.drift * std::normal_distribution<double>()(random_)
                                     : std::uniform_real_distribution<double>(0, 1)(random_);
    sample_phase_ -= std::floor(sample_phase_);
    double before = sample_phase_ * all;
    State* met = nullptr;
    for (State& state : states_) {
      if (before >= 0 && state.sampled_s > 0) met = &state;
      before -= state.sampled_s;
    }
    met->credited_s += all / spec_.credited;
  }
  for (State& state : states_) state.sampled_s = 0;
}

AttribTick ShareWorld::tick() {
  sensed_j_ = sensed_s_ = clock_sum_ = 0;
  capped_steps_ = 0;
  for (State& state : states_) state.credited_s = state.joules = 0;
  const std::size_t kept = 200;
  if (late_.size() > 2 * kept) late_.erase(late_.begin(), late_.end() - static_cast<long>(kept));
  for (long i = 0; i < kStepsATick; ++i) step();
  AttribTick out{.length = std::chrono::seconds(1)};
  const double watts =
      sensed_j_ / sensed_s_ + kNoiseW * std::normal_distribution<double>()(random_);
  out.energy_mj = std::llround(watts * 1000);
  out.capped = Fraction(static_cast<double>(capped_steps_) / kStepsATick);
  if (spec_.clock_is_read) out.sm_clock = Megahertz(kTopMhz * clock_sum_ / kStepsATick);
  truth_.clear();
  for (std::size_t k = 0; k < states_.size(); ++k) {
    const State& state = states_[k];
    if (state.joules > 0)
      truth_.push_back({key_of(k), state.joules, now_s_ - state.worked_at_s > kRestsS});
    if (!state.here) continue;
    TenantTick tenant{.key = key_of(k),
                      .signal = SignalKind::process_utilisation,
                      .program = ProgramId{"user", fmt::format("program {}", k)}};
    const double used = std::round(100 * std::min(1.0, state.credited_s)) / 100;
    tenant.sm_utilisation = Fraction(used);
    tenant.memory_utilisation = Fraction(used / 2);
    out.tenants.push_back(std::move(tenant));
  }
  return out;
}

// --- the worlds ----------------------------------------------------------------------------------

namespace {

ShareWorldSpec world_of(std::string name, std::vector<ShareProcess> processes) {
  return {.name = std::move(name), .processes = std::move(processes)};
}

// One works, the others hold a context: they never worked, or for the first minute.
ShareWorldSpec parked(int others, bool worked) {
  std::vector<ShareProcess> processes{{.on_s = {50, 50}, .off_s = {10, 10}}};
  for (int i = 0; i < others; ++i)
    processes.push_back(worked ? ShareProcess{.watts = 250, .demand = 0.5, .stops_s = 60}
                               : ShareProcess{.parked = true});
  ShareWorldSpec spec =
      world_of(fmt::format("parked:{}{}", others, worked ? ":worked" : ""), std::move(processes));
  spec.length_s = 900;
  return spec;
}

ShareWorldSpec light(double demand, double watts) {
  return world_of(fmt::format("light:{:g}:{:g}", demand, watts),
                  {{.watts = 250}, {.watts = watts, .demand = demand}});
}

ShareWorldSpec turns(double turn_s, int processes) {
  constexpr double kWatts[] = {300, 150, 420};
  std::vector<ShareProcess> out;
  for (int i = 0; i < processes; ++i) out.push_back({.watts = kWatts[i]});
  ShareWorldSpec spec = world_of(fmt::format("turns:{:g}:{}", turn_s, processes), std::move(out));
  spec.turn_s = turn_s;
  return spec;
}

// Three that pause, of different demands.
std::vector<ShareProcess> three(double demand_low, double demand_high) {
  const double middle = (demand_low + demand_high) / 2;
  return {{.watts = 350, .demand = demand_high, .on_s = {5, 40}, .off_s = {5, 30}},
          {.watts = 150, .demand = middle, .on_s = {5, 40}, .off_s = {5, 30}},
          {.watts = 240, .demand = demand_low, .on_s = {5, 40}, .off_s = {5, 30}}};
}

std::vector<ShareProcess> saturating() { return {{.watts = 330}, {.watts = 180}}; }

using Worlds = std::vector<ShareWorldSpec>;

ShareWorldSpec& add(Worlds& worlds, std::string name, std::vector<ShareProcess> processes) {
  worlds.push_back(world_of(std::move(name), std::move(processes)));
  return worlds.back();
}

void add_light_ones(Worlds& out) {
  for (const double demand : {0.02, 0.1, 0.3, 0.5})
    for (const double watts : {100.0, 250.0, 400.0}) out.push_back(light(demand, watts));
  out.push_back(light(0.1, 250));
  out.back().name += ":on-off";
  ShareProcess& one = out.back().processes[1];
  one.on_s[0] = one.on_s[1] = one.off_s[0] = one.off_s[1] = 10;
  out.push_back(light(0.1, 400));
  out.back().name += ":both-demand";
  out.back().processes[0].demand = 0.9;
}

void add_turns(Worlds& out) {
  for (const double turn_s : {0.3, 0.5, 0.7, 1.0, 1.5, 2.5, 3.3, 7.0, 20.0})
    out.push_back(turns(turn_s, 2));
  for (const double turn_s : {0.5, 1.3, 2.5, 4.5}) out.push_back(turns(turn_s, 3));
  out.push_back(turns(7, 2));
  out.back().name += ":late";
  out.back().lag_s = 1;
}

void add_watts(Worlds& out) {
  add(out, "three", three(0.3, 1));
  add(out, "three:light", three(0.05, 0.5));
  for (ShareProcess& one : add(out, "three:same", three(0.3, 1)).processes)
    one.watts = 250, one.demand = 1;
  add(out, "saturating", saturating());
  for (const bool pauses : {true, false})
    for (ShareProcess& one :
         add(out, pauses ? "wander" : "wander:saturating", pauses ? three(0.3, 1) : saturating())
             .processes)
      one.wander_sd = 0.35;
  for (const bool pauses : {true, false})
    for (ShareProcess& one :
         add(out, pauses ? "jump" : "jump:saturating", pauses ? three(0.3, 1) : saturating())
             .processes)
      one.jump[0] = 0.5, one.jump[1] = 2, one.jump_s[0] = 20, one.jump_s[1] = 60;
  add(out, "swing:0.5:60",
      {{.watts = 250, .swing = 0.5}, {.watts = 250, .on_s = {5, 5}, .off_s = {55, 55}}});
  for (ShareProcess& one : add(out, "swing:three", three(0.3, 1)).processes)
    one.swing = 0.5, one.swing_s = 70;
}

void add_clocks(Worlds& out) {
  for (const double exponent : {1.0, 1.7, 2.2, 3.0})
    for (const bool read : {true, false}) {
      ShareWorldSpec& spec =
          add(out, fmt::format("clock:{:g}{}", exponent, read ? "" : ":unread"), three(0.3, 1));
      spec.clock[0] = 0.5;
      spec.clock_is_read = read;
      spec.work_exponent = exponent;
      spec.context_exponent = exponent == 1.7 ? 0 : exponent;
    }
}

void add_limits(Worlds& out) {
  for (const double limit_w : {250.0, 400.0}) {
    const std::vector<ShareProcess> worlds[] = {
        {{.watts = 550}, {.parked = true}, {.parked = true}},
        {{.watts = 550}, {.watts = 300, .demand = 0.3}},
        {{.watts = 550}, {.watts = 350}},
        {{.watts = 550}, {.watts = 350, .begins_s = 300}},
        {{.watts = 550}, {.watts = 200, .on_s = {20, 60}, .off_s = {20, 60}}},
        {{.watts = 550, .on_s = {10, 60}, .off_s = {10, 60}},
         {.watts = 400, .on_s = {10, 60}, .off_s = {10, 60}},
         {.watts = 150, .on_s = {10, 60}, .off_s = {10, 60}}}};
    const char* const names[] = {"alone", "light", "two", "joined", "visited", "three"};
    for (std::size_t i = 0; i < std::size(worlds); ++i)
      add(out, fmt::format("limit:{:g}:{}", limit_w, names[i]), worlds[i]).power_limit_w = limit_w;
  }
}

void add_samples(Worlds& out) {
  for (const double sample_s : {1.0 / 6, 0.2, 1.0})
    for (const int credited : {1, 2}) {
      ShareWorldSpec& spec =
          add(out, fmt::format("sample:{:.2g}:{}", sample_s, credited), three(0.3, 1));
      spec.sample_s = sample_s;
      spec.credited = credited;
    }
  add(out, "sample:1:saturating", saturating()).sample_s = 1;
  for (const double drift : {0.03, 0.1})
    add(out, fmt::format("lock:{:g}", drift), saturating()).drift = drift;
  add(out, "lock:three", three(0.5, 1)).drift = 0.1;
}

// Programs that were seen before: Derate is started anew, or their processes end and come again.
void add_known_ones(Worlds& out) {
  std::vector<ShareProcess> apart = {{.watts = 150}, {.watts = 400, .begins_s = 120}};
  add(out, "restart:two", apart).restart_s = 900;
  apart.push_back({.watts = 250, .demand = 0.4, .begins_s = 240});
  add(out, "restart:three", apart).restart_s = 900;
  for (ShareProcess& one : apart)
    one.jump[0] = 0.5, one.jump[1] = 2, one.jump_s[0] = 200, one.jump_s[1] = 600;
  add(out, "restart:changed", apart).restart_s = 900;
  for (const bool changes : {false, true}) {
    std::vector<ShareProcess>& two = add(out, changes ? "visits:changed" : "visits", {}).processes;
    two = {{.watts = 300, .demand = 0.5, .begins_s = 0, .ends_s = 250, .comes_again_s = 20},
           {.watts = 120, .begins_s = 90, .ends_s = 210, .comes_again_s = 100}};
    for (ShareProcess& one : two)
      if (changes) one.jump[0] = 0.4, one.jump[1] = 2.5, one.jump_s[0] = one.jump_s[1] = 300;
  }
}

void add_crowds(Worlds& out) {
  std::vector<ShareProcess>& waking = add(out, "wake12", {{.watts = 280}}).processes;
  for (int i = 0; i < 11; ++i)
    waking.push_back({.watts = 120.0 + 20 * i, .on_s = {3, 30}, .off_s = {300, 900}});
  std::vector<ShareProcess>& idle = add(out, "idle8", {}).processes;
  for (int i = 0; i < 8; ++i)
    idle.push_back({.watts = 120.0 + 30 * i, .demand = 0.3, .on_s = {20, 60}, .off_s = {100, 300}});
  std::vector<ShareProcess>& visitors = add(out, "visitors", {}).processes;
  for (int i = 0; i < 4; ++i)
    visitors.push_back({.watts = 120.0 + 70 * i,
                        .demand = 0.2 + 0.2 * i,
                        .begins_s = 7.0 * i,
                        .ends_s = 60.0 + 20 * i,
                        .comes_again_s = 20});
  add_known_ones(out);
  add(out, "training-inference",
      {{.watts = 330}, {.watts = 200, .demand = 0.15, .on_s = {2, 20}, .off_s = {2, 20}}});
  std::vector<ShareProcess>& five = add(out, "five-light", {}).processes;
  for (const double demand : {0.05, 0.1, 0.15, 0.25, 0.35})
    five.push_back({.watts = 150.0 + 60 * static_cast<double>(five.size()), .demand = demand});
}

}  // namespace

std::vector<ShareWorldSpec> share_worlds() {
  Worlds out;
  for (const bool worked : {false, true})
    for (const int others : {1, 5, 15, 40}) out.push_back(parked(others, worked));
  add_light_ones(out);
  add_turns(out);
  add_watts(out);
  add_clocks(out);
  add_limits(out);
  add_samples(out);
  add_crowds(out);
  return out;
}

std::vector<ShareWorldSpec> drawn_share_worlds(std::uint64_t seed, int count) {
  std::vector<ShareWorldSpec> out;
  std::mt19937_64 random(seed * 15485863 + 3), limits(seed * 32452843 + 5);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  const auto chance = [&](double of) { return between(0, 1) < of; };
  for (int i = 0; i < count; ++i) {
    ShareWorldSpec spec{.name = fmt::format("drawn:{}", i + 1)};
    const int processes = static_cast<int>(between(2, 8.99));
    for (int k = 0; k < processes; ++k) {
      ShareProcess one{.watts = between(60, 500)};
      one.demand = chance(0.3) ? 1 : std::exp(between(std::log(0.02), 0));
      one.parked = k > 0 && chance(0.2);
      if (chance(0.5)) {
        one.on_s[0] = std::exp(between(std::log(2.0), std::log(60.0))),
        one.on_s[1] = 3 * one.on_s[0];
        one.off_s[0] = std::exp(between(std::log(2.0), std::log(60.0))),
        one.off_s[1] = 3 * one.off_s[0];
      }
      if (chance(0.2)) one.wander_sd = between(0.1, 0.35), one.wander_s = between(30, 300);
      if (chance(0.2)) one.ends_s = between(60, 600), one.comes_again_s = between(1, 60);
      spec.processes.push_back(one);
    }
    if (chance(0.2)) spec.turn_s = std::exp(between(std::log(0.3), std::log(60.0)));
    if (chance(0.2))
      spec.clock[0] = between(0.4, 0.9), spec.work_exponent = between(1, 3),
      spec.context_exponent = between(0, 3);
    if (chance(0.15)) spec.sample_s = chance(0.5) ? 1.0 / 6 : 1;
    if (chance(0.15)) spec.lag_s = between(0, 1);
    spec.base_w = between(60, 100), spec.context_w = between(25, 70);
    std::uniform_real_distribution<double> uniform(0, 1);
    if (uniform(limits) < 0.2) spec.power_limit_w = 200 + 300 * uniform(limits);
    out.push_back(std::move(spec));
  }
  return out;
}

}  // namespace derate
