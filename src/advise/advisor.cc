// The rules: from evidence to advice.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "advise/advice.h"

namespace derate {
namespace {

double value(const std::optional<Fraction>& share) { return share ? share->value() : 0; }
double value(const std::optional<BytesPerSecond>& rate) { return rate ? rate->value() : 0; }
std::string percent_of(double share) { return fmt::format("{:.0f} %", 100 * share); }
std::string percent_of(Fraction share) { return percent_of(share.value()); }

std::string bytes_text(double bytes) {
  return bytes >= 1e9 ? fmt::format("{:.1f} GB", bytes / 1e9)
                      : fmt::format("{:.0f} MB", bytes / 1e6);
}
std::string time_text(double s) {
  return s < 10 ? fmt::format("{:.2g} s", s) : fmt::format("{:.0f} s", s);
}

double waiting_share(const WorkEvidence& e) { return 1 - e.working.value(); }

Advice advice(Finding finding, double lost, bool is_sure, std::string evidence,
              std::string effect) {
  // Close to the border of what is worth a word nothing is sure.
  const bool sure = is_sure && lost >= 1.5 * kLeastLost.value();
  return {finding, sure ? Certainty::sure : Certainty::likely, Fraction(std::min(lost, 1.0)),
          std::move(evidence), std::move(effect)};
}

// --- slowed down ---------------------------------------------------------------------------------

std::string slowdown_text(const WorkEvidence& e, const Slowdown& slowdown) {
  std::string out =
      fmt::format("while it worked, the driver named it {} of the time", percent_of(slowdown.time));
  if (slowdown.clock && e.highest_clock)
    out += fmt::format("; the clock was then {:.0f} MHz of {:.0f}", slowdown.clock->value(),
                       e.highest_clock->value());
  return out;
}

std::string slowdown_effect(const Slowdown& slowdown) {
  return fmt::format("at most {} of the time, if the clock were the highest",
                     percent_of(slowdown.lost));
}

void add_slowdowns(std::vector<Advice>& out, const WorkEvidence& e) {
  const auto add = [&](Finding finding, const Slowdown& slowdown, const std::string& more) {
    out.push_back(advice(finding, slowdown.lost.value(), true, slowdown_text(e, slowdown) + more,
                         slowdown_effect(slowdown)));
  };
  const std::string heat =
      e.hottest ? fmt::format("; {:.0f} °C at most", e.hottest->value()) : std::string();
  add(Finding::heat, e.heat, heat);
  const std::string power =
      e.power ? fmt::format("; it drew {:.0f} W", e.power->value()) : std::string();
  add(Finding::power_limit, e.power_cap, power);
}

// --- nothing runs --------------------------------------------------------------------------------

// Of the clock's highest: above that it is kept high.
constexpr double kHighClock = 0.6;

bool runs_nothing(const WorkEvidence& e) { return e.idle_at_end.value() >= 0.85; }

std::string holders_text(const std::optional<int>& processes) {
  if (!processes) return "whether a process holds a context is not known";
  return fmt::format("{} {} a context", *processes,
                     *processes == 1 ? "process holds" : "processes hold");
}

// Of a GPU that nobody holds there is nothing to say.
std::optional<Advice> advise_of_idleness(const WorkEvidence& e) {
  if (e.processes == 0) return std::nullopt;
  const bool high =
      e.idle_clock && e.highest_clock && *e.idle_clock / *e.highest_clock >= kHighClock;
  std::string evidence = fmt::format("{} of the time nothing ran; {}", percent_of(e.idle_at_end),
                                     holders_text(e.processes));
  if (e.idle_clock) evidence += fmt::format("; {:.0f} MHz", e.idle_clock->value());
  if (e.idle_power) evidence += fmt::format(", {:.0f} W", e.idle_power->value());
  return advice(high ? Finding::idle_clock : Finding::idle_context, e.idle_at_end.value(),
                e.processes.has_value(), std::move(evidence),
                high ? "part of these watts, at the lowest clock; others could use the GPU"
                     : "others could use the GPU");
}

// --- waits ---------------------------------------------------------------------------------------

struct LongStops {
  std::size_t count = 0;
  double longest = 0, total = 0, bytes_out = 0, bytes_in = 0, every = 0;
};

LongStops long_stops(const WorkEvidence& e) {
  constexpr double kLong = 1.5;
  LongStops out;
  double first = 0, last = 0;
  for (const Stop& stop : e.stops) {
    const double length = seconds(stop.length);
    if (length < kLong) continue;
    if (out.count == 0) first = seconds(stop.from);
    last = seconds(stop.from);
    ++out.count;
    out.total += length;
    out.longest = std::max(out.longest, length);
    out.bytes_out += stop.bytes_out;
    out.bytes_in += stop.bytes_in;
  }
  if (out.count > 1) out.every = (last - first) / static_cast<double>(out.count - 1);
  return out;
}

std::optional<Advice> advise_of_checkpoints(const WorkEvidence& e) {
  constexpr double kRare = 10, kState = 0.3e9, kMostOfWaiting = 0.5;
  const LongStops stops = long_stops(e);
  const double waited = waiting_share(e) * seconds(e.length);
  const bool rare = stops.count == 1 || stops.every >= kRare;
  if (stops.count == 0 || !rare || stops.total < kMostOfWaiting * waited) return std::nullopt;
  const double out_each = stops.bytes_out / static_cast<double>(stops.count);
  if (out_each < kState || stops.bytes_out < 2 * stops.bytes_in) return std::nullopt;
  const std::string every =
      stops.count > 1 ? fmt::format(" every {}", time_text(stops.every)) : std::string();
  const double lost = stops.total / seconds(e.length);
  return advice(Finding::checkpoint, lost, stops.count > 1,
                fmt::format("{} stops of up to {}{}, in each of which {} were copied out",
                            stops.count, time_text(stops.longest), every, bytes_text(out_each)),
                fmt::format("at most {} of the time", percent_of(lost)));
}

// What launches bring in over PCIe, some 4 kB each (measured on an H200: docs/advise.md): 20,000 a
// second are as many as a program of this kind makes that fills the GPU between.
constexpr double kManyLaunches = 0.08e9;

// Whether what comes in over PCIe is input for the work: launches come evenly, batches at once.
struct InputGuess {
  bool is_input = false, is_clear = false;
};
InputGuess guess_input(const WorkEvidence& e) {
  constexpr double kUneven = 2.7, kSurely = 5, kEven = 2.2;
  const double bursts = e.pcie.in_bursts.value_or(1);
  const double usual = value(e.pcie.in_usual) / kManyLaunches;
  if (bursts >= kUneven) return {true, bursts >= kSurely};
  if (usual >= 1.25) return {true, usual >= 3};
  constexpr double kFewCopies = 0.01;  // of the link, while it waits
  return {false, bursts < kEven && usual < 0.8 && value(e.pcie.waiting) < kFewCopies * e.pcie.link};
}

std::string waiting_text(const WorkEvidence& e) {
  std::string out =
      fmt::format("kernels ran {} of {}", percent_of(e.working), time_text(seconds(e.length)));
  if (const auto usual = usual_stop(e))
    out += fmt::format("; {} stops of {} or more, {} in the median", e.stops.size(),
                       time_text(seconds(kShortestStop)), time_text(seconds(*usual)));
  return out;
}

// Whether what is copied over PCIe is known.
bool sees_copies(const WorkEvidence& e) { return e.pcie.in && e.pcie.out; }

std::string copies_text(const WorkEvidence& e) {
  if (!sees_copies(e)) return "";
  return fmt::format("; over PCIe {} came in and {} went out each second",
                     bytes_text(value(e.pcie.in)), bytes_text(value(e.pcie.out)));
}

// Of the time that it waits, how much copies take that go at the rate of the fastest.
double share_of_copies(const WorkEvidence& e) {
  const double most = value(e.pcie.most);
  return most > 0 ? value(e.pcie.waiting) / most : 0;
}

std::optional<Advice> advise_of_copies(const WorkEvidence& e, double lost) {
  constexpr double kMuch = 0.08, kSome = 0.03, kMostOfIt = 0.7;  // of the link; of the waiting
  // Input for the work only comes in.
  constexpr double kBothWays = 0.3;
  const double moved = value(e.pcie.waiting) / e.pcie.link;
  const bool goes_out = value(e.pcie.out) > kBothWays * value(e.pcie.in);
  const bool is_much =
      moved > kMuch || (moved > kSome && (goes_out || share_of_copies(e) > kMostOfIt));
  if (!is_much) return std::nullopt;
  return advice(Finding::transfers, lost, moved > 1.5 * kMuch, waiting_text(e) + copies_text(e),
                fmt::format("at most {} of the time", percent_of(lost)));
}

// Kernels of some microseconds fill few SMs, and are launched as fast as the host can: tens of
// thousands a second. A loop of empty ones on an H200 ran kernels for a third of the time, on a
// third of the SMs, with 75,000 launches a second (docs/advise.md).
double tininess(const WorkEvidence& e) {
  constexpr double kFewSms = 0.25;
  const double launches = std::max(value(e.pcie.in_usual), 1e6) / kManyLaunches;
  return std::log(launches) - 1.5 * std::log(std::max(value(e.sm), 0.01) / kFewSms);
}

// The host is slow, in one way or another.
std::optional<Advice> advise_of_waiting(const WorkEvidence& e) {
  const double lost = waiting_share(e);
  // NVML's utilisation reads a point or two less than all where kernels run all the time.
  constexpr double kLeastOutside = 0.09;
  if (lost < (e.sees_inside ? kLeastLost.value() : kLeastOutside)) return std::nullopt;
  const std::string effect = fmt::format("at most {} of the time", percent_of(lost));
  if (!sees_copies(e)) return advice(Finding::waiting, lost, true, waiting_text(e), effect);
  if (auto stops = advise_of_checkpoints(e)) return stops;
  if (auto copies = advise_of_copies(e, lost)) return copies;
  const InputGuess guess = guess_input(e);
  return advice(guess.is_input ? Finding::data_loader : Finding::host, lost, guess.is_clear,
                waiting_text(e) + copies_text(e), effect);
}

// --- kernels -------------------------------------------------------------------------------------

double busiest_pipe(const WorkEvidence& e) {
  return std::max({value(e.tensor), value(e.fp64), value(e.fp32), value(e.fp16), value(e.integer)});
}

// Whether each pipe is known that can be the busiest.
bool sees_all_pipes(const WorkEvidence& e) {
  return e.tensor && e.fp64 && e.fp32 && e.fp16 && e.integer;
}

std::string units_text(const WorkEvidence& e) {
  const std::pair<const char*, std::optional<Fraction>> units[] = {
      {"SMs were busy", e.sm}, {"warps resident", e.occupancy},
      {"tensor", e.tensor},    {"FP32", e.fp32},
      {"FP64", e.fp64},        {"DRAM", e.dram}};
  std::string out;
  for (const auto& [name, share] : units)
    if (share) out += fmt::format("{} {} {}", out.empty() ? "" : ",", name, percent_of(*share));
  return "of the time with kernels" + out;
}

// Kernels that page in managed memory run while they wait.
std::optional<Advice> advise_of_paging(const WorkEvidence& e) {
  const double moved = value(e.pcie.in) + value(e.pcie.out);
  if (moved < 0.12 * e.pcie.link || busiest_pipe(e) > 0.3 || waiting_share(e) > 0.5)
    return std::nullopt;
  return advice(Finding::transfers, 0.5 * e.working.value(),
                moved > 0.2 * e.pcie.link && sees_all_pipes(e), units_text(e) + copies_text(e),
                "kernels that wait for no pages");
}

std::optional<Advice> advise_of_small_kernels(const WorkEvidence& e) {
  constexpr double kSmall = 0.66, kClear = 0.7;
  const double sm = value(e.sm), busy = std::max(busiest_pipe(e), value(e.dram));
  if (!e.sm || sm >= kSmall || busy > 0.5) return std::nullopt;
  if (!e.pcie.in_usual)
    return advice(Finding::underused, e.working.value() * (1 - sm), sm < 0.6, units_text(e),
                  "not known before a profiler tells which of them it is");
  const double tiny = tininess(e);
  const double lost = tiny > 0 ? 1 - e.working.value() * sm : e.working.value() * (1 - sm);
  return advice(tiny > 0 ? Finding::launches : Finding::small_kernels, lost,
                std::abs(tiny) > kClear && sm < 0.6, units_text(e) + copies_text(e),
                fmt::format("up to {} of the SMs' time is free", percent_of(1 - sm)));
}

// Of its limit; false: not known.
constexpr double kLittlePower = 0.52;
bool draws_little(const WorkEvidence& e, double share) {
  return e.power && e.power_limit && *e.power / *e.power_limit < share;
}

std::optional<Advice> advise_of_occupancy(const WorkEvidence& e) {
  constexpr double kFewWarps = 0.2, kBusyPipe = 0.3, kBusyDram = 0.4;
  if (!e.occupancy || value(e.sm) < 0.66 || value(e.occupancy) >= kFewWarps ||
      busiest_pipe(e) >= kBusyPipe || value(e.dram) >= kBusyDram)
    return std::nullopt;
  // A busy pipe that is not seen draws power.
  const bool all = sees_all_pipes(e);
  if (!all && !draws_little(e, kLittlePower)) return std::nullopt;
  const double lost = 0.45 * e.working.value();
  const bool clear = value(e.occupancy) < 0.15 && busiest_pipe(e) < 0.22;
  return advice(Finding::occupancy, lost, all && clear, units_text(e),
                "not known before it is tried: latency is hidden by more warps");
}

std::optional<Advice> advise_of_memory(const WorkEvidence& e) {
  const double lost = 0.5 * e.memory_heavy.value();
  if (lost <= 0) return std::nullopt;
  const auto& share = e.dram ? e.dram : e.memory_utilisation;
  return advice(
      Finding::memory, lost, e.memory_heavy.value() > 0.5,
      fmt::format("{} of the time the memory was close to its bandwidth ({} of it while kernels "
                  "ran)",
                  percent_of(e.memory_heavy), percent_of(value(share))),
      "less traffic for the same work makes it faster in proportion; the clock hardly "
      "matters");
}

// Matrix products are computed in large tiles, so that few warps are resident (measured 12 to 18 %
// on an H200): work with many is another, which tensor cores do not know.
std::optional<Advice> advise_of_tensor_cores(const WorkEvidence& e) {
  constexpr double kMuch = 0.3, kNone = 0.05, kManyWarps = 0.42;
  if (value(e.fp32) < kMuch || value(e.tensor) > kNone || !e.tensor || !e.occupancy ||
      value(e.occupancy) > kManyWarps)
    return std::nullopt;
  return advice(Finding::tensor_idle, 0.45 * e.working.value(), false, units_text(e),
                "matrix products two to eight times as fast, where they may be TF32 or bf16");
}

// Without counters of copies, which show launches: the board draws little though kernels run, and
// they use no memory.
constexpr double kEvenLessPower = 0.42;
bool is_tiny_outside(const WorkEvidence& e) {
  constexpr double kNoMemory = 0.08;
  return !sees_copies(e) && value(e.memory_utilisation) < kNoMemory &&
         draws_little(e, kEvenLessPower);
}

// Kernels run all the time and the board draws little.
std::optional<Advice> advise_of_underuse(const WorkEvidence& e) {
  if (!e.power || !e.power_limit) return std::nullopt;
  const double power = *e.power / *e.power_limit;
  const bool slowed = e.heat.time.value() > 0.3 || e.power_cap.time.value() > 0.3;
  const bool tiny = is_tiny_outside(e);
  if (slowed || power >= kLittlePower || e.memory_heavy.value() > 0.3) return std::nullopt;
  if (!tiny && e.working.value() < 0.8) return std::nullopt;
  return advice(
      Finding::underused, tiny ? 1 - 0.3 * e.working.value() : 0.45 * e.working.value(),
      power < kEvenLessPower && e.working.value() > 0.85,
      fmt::format("kernels ran {} of the time and the board drew {:.0f} W then, {} of its "
                  "limit; memory was used {} of the time",
                  percent_of(e.working), e.power->value(), percent_of(power),
                  percent_of(value(e.memory_utilisation))),
      "not known before a profiler tells which of them it is");
}

std::optional<Advice> advise_of_kernels(const WorkEvidence& e) {
  if (!e.sees_inside || is_tiny_outside(e)) return advise_of_underuse(e);
  for (const auto& rule :
       {advise_of_paging, advise_of_small_kernels, advise_of_occupancy, advise_of_tensor_cores})
    if (auto out = rule(e)) return out;
  if (!e.sm || !e.occupancy || !sees_copies(e)) return advise_of_underuse(e);
  return std::nullopt;
}

void add(std::vector<Advice>& out, std::optional<Advice> one) {
  if (one) out.push_back(*std::move(one));
}

}  // namespace

std::vector<Advice> advise(const WorkEvidence& evidence) {
  std::vector<Advice> out;
  if (runs_nothing(evidence)) {
    add(out, advise_of_idleness(evidence));
    return out;
  }
  add_slowdowns(out, evidence);
  auto kernels = advise_of_kernels(evidence);
  // What is waited for between tiny kernels is the next launch.
  if (!kernels || (kernels->finding != Finding::launches && !is_tiny_outside(evidence)))
    add(out, advise_of_waiting(evidence));
  add(out, std::move(kernels));
  add(out, advise_of_memory(evidence));
  std::erase_if(out, [](const Advice& each) { return each.lost < kLeastLost; });
  std::stable_sort(out.begin(), out.end(),
                   [](const Advice& a, const Advice& b) { return a.lost > b.lost; });
  // Where another costs about as much, the first is a guess.
  if (out.size() > 1 && out[0].lost.value() < 1.3 * out[1].lost.value())
    out[0].certainty = Certainty::likely;
  return out;
}

std::optional<Advice> advise_of_imbalance(std::span<const WorkEvidence> gpus,
                                          std::optional<Fraction> unevenness) {
  if (gpus.size() < 2 || !unevenness) return std::nullopt;
  const bool all_work = std::all_of(gpus.begin(), gpus.end(), [](const WorkEvidence& each) {
    return each.working.value() >= 0.85;
  });
  const bool inside = gpus.front().sees_inside;
  if (!all_work || unevenness->value() < (inside ? 0.08 : 0.065)) return std::nullopt;
  std::string each_text;
  for (const WorkEvidence& each : gpus) {
    each_text += fmt::format("{}GPU {}", each_text.empty() ? "" : ", ", each.gpu.index);
    if (inside) each_text += fmt::format(" {}", percent_of(value(each.sm)));
    if (!inside && each.power) each_text += fmt::format(" {:.0f} W", each.power->value());
  }
  return advice(Finding::imbalance, std::max(unevenness->value(), kLeastLost.value()),
                unevenness->value() >= 0.12,
                fmt::format("at each moment GPUs are behind the busiest by {} in the mean; {}: {}",
                            percent_of(*unevenness), inside ? "SMs busy" : "power", each_text),
                fmt::format("at most {} of the time", percent_of(*unevenness)));
}

void drop_what_imbalance_explains(std::vector<Advice>& of_one) {
  std::erase_if(of_one, [](const Advice& each) {
    return each.finding == Finding::small_kernels || each.finding == Finding::launches ||
           each.finding == Finding::occupancy || each.finding == Finding::underused;
  });
}

}  // namespace derate
