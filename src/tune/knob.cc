#include "tune/knob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/text.h"

namespace derate {
namespace {

struct SelectorName {
  const char* name;
  Selector::Kind kind;
  double Selector::*value;  // what may follow a colon; null: nothing
  double lowest, highest;
};

constexpr SelectorName kSelectors[] = {
    {"energy", Selector::Kind::energy, nullptr, 0, 0},
    {"time", Selector::Kind::time, nullptr, 0, 0},
    {"cost", Selector::Kind::cost, &Selector::eta, 0, 1},
    {"max-slowdown", Selector::Kind::max_slowdown, &Selector::slowdown, 1, 2},
};

const SelectorName& row_of(Selector::Kind kind) {
  return *std::find_if(std::begin(kSelectors), std::end(kSelectors),
                       [&](const SelectorName& row) { return row.kind == kind; });
}

double energy_of(const KnobReading& reading) { return reading.power.value() / reading.rate; }

}  // namespace

Result<Selector> parse_selector(std::string_view text) {
  const auto colon = text.find(':');
  for (const SelectorName& row : kSelectors) {
    if (text.substr(0, colon) != row.name) continue;
    Selector out{.kind = row.kind};
    if (colon == text.npos) return out;
    const auto value = parse_double(text.substr(colon + 1));
    if (row.value != nullptr && value && *value >= row.lowest && *value <= row.highest) {
      out.*row.value = *value;
      return out;
    }
  }
  return Error{
      Errc::invalid_argument,
      fmt::format("selector '{}': allowed are energy, time, cost, cost:ETA with ETA in [0, "
                  "1], max-slowdown, max-slowdown:FACTOR with FACTOR in [1, 2]",
                  text)};
}

std::string to_string(const Selector& selector) {
  const SelectorName& row = row_of(selector.kind);
  return row.value == nullptr ? row.name : fmt::format("{}:{}", row.name, selector.*row.value);
}

double price(const Selector& selector, Watts max_power, const KnobReading& reading) {
  switch (selector.kind) {
    case Selector::Kind::time:
      return 1 / reading.rate;
    case Selector::Kind::cost:
      return selector.eta * energy_of(reading) +
             (1 - selector.eta) * max_power.value() / reading.rate;
    case Selector::Kind::energy:
    case Selector::Kind::max_slowdown:
      break;
  }
  return energy_of(reading);
}

std::size_t best_reading(const Selector& selector, Watts max_power,
                         std::span<const KnobReading> readings) {
  CHECK(!readings.empty());
  const double slowest =
      selector.kind == Selector::Kind::max_slowdown ? readings.back().rate / selector.slowdown : 0;
  std::size_t best = readings.size() - 1;
  for (std::size_t i = best; i-- > 0;)
    if (readings[i].rate >= slowest &&
        price(selector, max_power, readings[i]) < price(selector, max_power, readings[best]))
      best = i;
  return best;
}

KnobSearch::KnobSearch(KnobSearchOptions options) : options_(std::move(options)) {
  CHECK(!options_.settings.empty());
}

std::size_t KnobSearch::index_of(double setting) const {
  const auto& all = options_.settings;
  const auto at = std::lower_bound(all.begin(), all.end(), setting);
  CHECK(at != all.end() && *at == setting);
  return static_cast<std::size_t>(at - all.begin());
}

bool KnobSearch::measured(std::size_t at) const {
  return std::any_of(readings_.begin(), readings_.end(), [&](const KnobReading& reading) {
    return reading.setting == options_.settings[at];
  });
}

// The readings that are quick enough; the reference is one.
std::span<const KnobReading> KnobSearch::allowed() const {
  const auto slow = std::count_if(readings_.begin(), readings_.end(), [&](const KnobReading& each) {
    return each.setting < options_.settings[lowest_];
  });
  return std::span(readings_).subspan(static_cast<std::size_t>(slow));
}

// The next setting to look at on that side of `middle`: what is told apart from all that was
// measured, next to it where nothing bounds it yet, else in the middle of the gap.
std::optional<std::size_t> KnobSearch::beside(std::size_t middle, int step) const {
  const auto& all = options_.settings;
  std::vector<std::size_t> gap;  // what is not measured, from the middle outwards
  std::optional<std::size_t> edge;
  for (std::size_t at = middle; !edge && (step < 0 ? at > lowest_ : at + 1 < all.size());) {
    at = step < 0 ? at - 1 : at + 1;
    if (measured(at))
      edge = at;
    else
      gap.push_back(at);
  }
  if (!edge && step < 0 && lowest_ > 0) edge = lowest_ - 1;  // the highest that is too slow
  std::erase_if(gap, [&](std::size_t at) {
    return std::abs(all[at] - all[middle]) < options_.resolution ||
           (edge && std::abs(all[at] - all[*edge]) < options_.resolution);
  });
  if (gap.empty()) return std::nullopt;
  return edge ? gap[(gap.size() - 1) / 2] : gap.front();
}

// By how much readings differ that the setting does not tell apart, relative: a lower setting is
// never quicker, and a limit far above what the work draws makes no difference.
double KnobSearch::ripple() const {
  const auto is_free = [&](const KnobReading& each) {
    return options_.limited_gpus &&
           each.power.value() / *options_.limited_gpus * kFree <= each.setting;
  };
  double out = 0;
  for (std::size_t high = 1; high < readings_.size(); ++high)
    for (std::size_t low = 0; low < high; ++low) {
      const double quicker = std::log(readings_[low].rate / readings_[high].rate);
      const bool same = is_free(readings_[low]) && is_free(readings_[high]);
      out = std::max(out, same ? std::abs(quicker) : quicker);
    }
  return out > options_.tie ? out : 0;
}

// Where the second reading is wanted.
double KnobSearch::start() const {
  if (options_.start) return *options_.start;
  const double usual = kUsualStart * options_.settings.back();
  if (!options_.limited_gpus) return usual;
  return std::min(usual, reference().power.value() / *options_.limited_gpus);
}

// Between two readings of one price that are of different work rates: the valley is there. Where
// readings ripple, it may be between any two.
std::optional<std::size_t> KnobSearch::among(std::span<const KnobReading> tied) const {
  std::optional<std::size_t> found;
  const double least = ripple() > 0 ? 0 : options_.tie;
  for (std::size_t i = tied.size(); !found && i-- > 1;)
    if (std::abs(tied[i].rate - tied[i - 1].rate) > least * tied[i].rate)
      found = beside(index_of(tied[i].setting), -1);
  return found;
}

std::optional<double> KnobSearch::next() const {
  const auto& all = options_.settings;
  if (readings_.empty() || !measured(all.size() - 1)) return all.back();
  if (lowest_ + 1 >= all.size()) return std::nullopt;
  if (readings_.size() == 1) {
    const double wanted = start();
    if (lowest_ > 0 && wanted < all[lowest_]) return all[(lowest_ + all.size() - 1) / 2];
    return *std::min_element(
        all.begin() + static_cast<std::ptrdiff_t>(lowest_), all.end() - 1,
        [&](double a, double b) { return std::abs(a - wanted) < std::abs(b - wanted); });
  }
  const auto price_of = [&](const KnobReading& reading) {
    return price(options_.selector, options_.max_power, reading);
  };
  // Where readings ripple, what is near the best may hide what is better.
  const double dearest = price_of(best()) * (1 + options_.tie) * std::exp(ripple());
  std::vector<KnobReading> tied;
  for (const KnobReading& each : allowed())
    if (price_of(each) <= dearest) tied.push_back(each);
  auto found = beside(index_of(tied.front().setting), -1);
  if (!found) found = beside(index_of(best().setting), -1);
  if (!found) found = beside(index_of(best().setting), 1);
  if (!found) found = among(tied);
  if (!found) return std::nullopt;
  return all[*found];
}

void KnobSearch::add(const KnobReading& reading) {
  CHECK(reading.rate > 0);
  const std::size_t at = index_of(reading.setting);
  const auto place = std::lower_bound(
      readings_.begin(), readings_.end(), reading,
      [](const KnobReading& a, const KnobReading& b) { return a.setting < b.setting; });
  if (place != readings_.end() && place->setting == reading.setting)
    *place = reading;
  else
    readings_.insert(place, reading);
  const bool max_slowdown = options_.selector.kind == Selector::Kind::max_slowdown;
  const double slowest = max_slowdown ? options_.selector.slowdown : options_.guard;
  if (reading.rate * slowest < reference().rate) rule_out(options_.settings[at]);
}

void KnobSearch::rule_out(double setting) {
  lowest_ = std::max(lowest_, std::min(index_of(setting) + 1, options_.settings.size() - 1));
}

const KnobReading& KnobSearch::best() const {
  const auto readings = allowed();
  return readings[best_reading(options_.selector, options_.max_power, readings)];
}

}  // namespace derate
