#include "signal/serving/read_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "base/printing.h"
#include "signal/serving/exposition.h"

namespace derate {
namespace {

// Assumed: what an engine that counts shared blocks twice may show at most.
constexpr double kMostKvShare = 1.05;
constexpr std::size_t kMostModelsShown = 8;
constexpr std::size_t kLongestModelShown = 60;
constexpr std::array<std::string_view, 1> kEdge = {"le"};

using Series = std::vector<const ExpositionSample*>;

std::string bucket_name(std::string_view histogram) { return std::string(histogram) + "_bucket"; }
std::string sum_name(std::string_view histogram) { return std::string(histogram) + "_sum"; }

std::vector<std::string> sample_names(std::span<const EngineNames> engines) {
  std::vector<std::string> out;
  for (const EngineNames& engine : engines) {
    for (const EngineRole& role : engine_roles()) {
      const MetricName& metric = engine.*role.name;
      for (const std::string_view name : {metric.name, metric.older}) {
        if (name.empty()) continue;
        const bool is_histogram = role.kind == RoleKind::histogram;
        out.push_back(is_histogram ? bucket_name(name) : std::string(name));
        if (is_histogram) out.push_back(sum_name(name));
      }
    }
  }
  return out;
}

// A page with the names that were wanted of it.
struct EnginePage {
  const WantedNames& names;
  const Exposition& page;

  Error wrong(const ExpositionSample& sample, std::string_view what,
              std::string_view allowed) const {
    return {Errc::bad_data, fmt::format("line {}: {} {}: allowed is {}", sample.line,
                                        names[sample.name], what, allowed)};
  }
};

// The engine of most roles on the page, those that can have a promise first; null: there is none.
const EngineNames* recognise(const EnginePage& of, std::span<const EngineNames> engines) {
  std::vector<bool> is_there(of.names.size());
  for (const ExpositionSample& each : of.page.samples) is_there[each.name] = true;
  const auto has = [&](std::string_view name, RoleKind kind) {
    if (name.empty()) return false;
    const auto place =
        of.names.find(kind == RoleKind::histogram ? bucket_name(name) : std::string(name));
    return place && is_there[*place];
  };
  const EngineNames* best = nullptr;
  std::pair<bool, int> most = {false, 0};
  for (const EngineNames& engine : engines) {
    std::pair<bool, int> here = {false, 0};
    for (const EngineRole& role : engine_roles()) {
      const MetricName& metric = engine.*role.name;
      if (!has(metric.name, role.kind) && !has(metric.older, role.kind)) continue;
      ++here.second;
      if (role.name == &EngineNames::between_tokens) here.first = true;
    }
    if (here > most) {
      most = here;
      best = &engine;
    }
  }
  return best;
}

Error no_engine(std::span<const EngineNames> engines) {
  std::string known;
  for (const EngineNames& each : engines) {
    if (!known.empty()) known += ", ";
    known += each.engine;
  }
  return {Errc::not_found,
          fmt::format("no metrics of an engine on the page: allowed are those of {}", known)};
}

// The names of models on the page, as it has them, each once.
std::vector<std::string_view> models_of(const EnginePage& of, const Series& series,
                                        std::string_view label) {
  std::vector<std::string_view> out;
  for (const ExpositionSample* each : series)
    if (const auto model = of.page.label(*each, label); !model.empty()) out.push_back(model);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::string models_text(std::span<const std::string_view> models) {
  std::string out;
  for (const std::string_view each : models.first(std::min(models.size(), kMostModelsShown)))
    out += fmt::format("{}'{}'", out.empty() ? "" : ", ",
                       log_text(unescape_label(each), kLongestModelShown));
  if (models.size() > kMostModelsShown)
    out += fmt::format(" and {} more", models.size() - kMostModelsShown);
  return out;
}

// The page's name of the model to read; empty: it names none.
Result<std::string_view> choose_model(std::span<const std::string_view> models,
                                      std::string_view wanted) {
  if (models.empty()) return std::string_view();
  if (wanted.empty()) {
    if (models.size() == 1) return models.front();
    return Error{Errc::invalid_argument, fmt::format("the page is of {} models: name one of {}",
                                                     models.size(), models_text(models))};
  }
  const auto at = std::ranges::find(models, std::string_view(escape_label(wanted)));
  if (at != models.end()) return *at;
  return Error{Errc::not_found,
               fmt::format("model '{}' is not on the page: allowed is {}",
                           log_text(wanted, kLongestModelShown), models_text(models))};
}

// Reads the roles of one engine from its series of one model.
class RoleReader {
 public:
  RoleReader(const EnginePage& of, const EngineNames& engine, Series series)
      : of_(of), engine_(engine), series_(std::move(series)) {}

  Result<void> read(const EngineRole& role, ServingState& out) const;

 private:
  Series named(std::string_view name, const MetricName& metric, RoleKind kind) const;
  void sort(Series& series, std::span<const std::string_view> ignored) const;
  bool is_alike(const ExpositionSample& a, const ExpositionSample& b,
                std::span<const std::string_view> ignored) const {
    return compare_labels(of_.page.labels_of(a), of_.page.labels_of(b), ignored) == 0;
  }
  Result<double> amount(const ExpositionSample& sample, RoleKind kind) const;
  Result<std::optional<double>> combine(Series series, RoleKind kind) const;
  Result<std::optional<LatencyHistogram>> add_histograms(std::string_view name,
                                                         const MetricName& metric) const;
  Result<LatencyHistogram> one_histogram(std::span<const ExpositionSample* const> buckets) const;

  const EnginePage& of_;
  const EngineNames& engine_;
  Series series_;
};

Series RoleReader::named(std::string_view name, const MetricName& metric, RoleKind kind) const {
  Series out;
  const auto place = of_.names.find(name);
  for (const ExpositionSample* each : series_) {
    if (each->name != place) continue;
    if (!metric.label.empty() && of_.page.label(*each, metric.label) != metric.value) continue;
    if (kind == RoleKind::gauge && !engine_.part_label.empty() &&
        !of_.page.label(*each, engine_.part_label).empty())
      continue;
    out.push_back(each);
  }
  return out;
}

void RoleReader::sort(Series& series, std::span<const std::string_view> ignored) const {
  std::stable_sort(series.begin(), series.end(), [&](const auto* a, const auto* b) {
    return compare_labels(of_.page.labels_of(*a), of_.page.labels_of(*b), ignored) < 0;
  });
}

// The sample's value, which is not NaN, within what its role allows.
Result<double> RoleReader::amount(const ExpositionSample& sample, RoleKind kind) const {
  const double most = kind == RoleKind::share ? kMostKvShare : kMostCounted;
  if (*sample.value < 0 || *sample.value > most)
    return of_.wrong(
        sample, fmt::format("{}", *sample.value),
        kind == RoleKind::share ? "a share in [0, 1]" : "a number in [0, 9007199254740992]");
  return kind == RoleKind::share ? std::min(*sample.value, 1.0) : std::abs(*sample.value);
}

Result<std::optional<double>> RoleReader::combine(Series series, RoleKind kind) const {
  const auto copies = engine_.copy_labels;
  if (kind == RoleKind::gauge) sort(series, copies);
  bool is_whole = true;
  double out = 0, of_copies = 0;
  for (std::size_t i = 0; i < series.size(); ++i) {
    if (!series[i]->value) {
      is_whole = false;
      continue;
    }
    const double here = TRY(amount(*series[i], kind));
    if (kind == RoleKind::share) {
      out = std::max(out, here);
    } else if (kind == RoleKind::gauge && i > 0 && is_alike(*series[i - 1], *series[i], copies)) {
      out += std::max(here - of_copies, 0.0);
      of_copies = std::max(of_copies, here);
    } else {
      out += here;
      of_copies = here;
    }
  }
  return is_whole ? std::optional(out) : std::nullopt;
}

// Of one series' buckets, at least one.
Result<LatencyHistogram> RoleReader::one_histogram(
    std::span<const ExpositionSample* const> buckets) const {
  struct Bucket {
    double edge;
    const ExpositionSample* sample;
  };
  std::vector<Bucket> sorted;
  sorted.reserve(buckets.size());
  for (const ExpositionSample* each : buckets) {
    const std::string_view text = of_.page.label(*each, "le");
    const auto edge = exposition_number(text);
    if (!edge || std::isnan(*edge) || *edge < 0)
      return of_.wrong(*each, fmt::format("has the edge '{}'", log_text(text, kLongestModelShown)),
                       "le=\"SECONDS\", at least 0, or le=\"+Inf\"");
    if (!each->value) return of_.wrong(*each, "NaN", "a count in each bucket");
    sorted.push_back({.edge = *edge, .sample = each});
  }
  std::sort(sorted.begin(), sorted.end(),
            [](const Bucket& a, const Bucket& b) { return a.edge < b.edge; });
  LatencyHistogram out;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto& [edge, sample] = sorted[i];
    const double count = TRY(amount(*sample, RoleKind::histogram));
    if (i > 0 && edge == sorted[i - 1].edge)
      return of_.wrong(*sample, fmt::format("has the edge {} twice", edge), "each edge once");
    if (i > 0 && count < out.counts.back())
      return of_.wrong(*sample, fmt::format("{} after {}", count, out.counts.back()),
                       "counts that do not fall from edge to edge");
    if (!std::isinf(edge)) out.edges_s.push_back(edge);
    out.counts.push_back(count);
  }
  if (!std::isinf(sorted.back().edge))
    return of_.wrong(*sorted.back().sample, "is the last bucket", "a last one with le=\"+Inf\"");
  return out;
}

Result<std::optional<LatencyHistogram>> RoleReader::add_histograms(std::string_view name,
                                                                   const MetricName& metric) const {
  Series buckets = named(bucket_name(name), metric, RoleKind::histogram);
  Series sums = named(sum_name(name), metric, RoleKind::histogram);
  sort(buckets, kEdge);
  sort(sums, kEdge);
  std::optional<LatencyHistogram> out;
  std::size_t at_sum = 0;
  for (std::size_t i = 0; i < buckets.size(); ++at_sum) {
    std::size_t end = i + 1;
    while (end < buckets.size() && is_alike(*buckets[i], *buckets[end], kEdge)) ++end;
    LatencyHistogram one = TRY(one_histogram(std::span(buckets).subspan(i, end - i)));
    if (at_sum == sums.size() || !is_alike(*buckets[i], *sums[at_sum], kEdge) ||
        !sums[at_sum]->value)
      return of_.wrong(*buckets[i], "has no sum", "a histogram with " + sum_name(name));
    one.sum_s = TRY(amount(*sums[at_sum], RoleKind::histogram));
    if (!out) {
      out = std::move(one);
    } else {
      if (out->edges_s != one.edges_s)
        return of_.wrong(*buckets[i], "has other edges than another series of it",
                         "series of equal edges");
      for (std::size_t j = 0; j < one.counts.size(); ++j) out->counts[j] += one.counts[j];
      out->sum_s += one.sum_s;
    }
    i = end;
  }
  return out;
}

Result<void> RoleReader::read(const EngineRole& role, ServingState& out) const {
  const MetricName& metric = engine_.*role.name;
  for (const std::string_view name : {metric.name, metric.older}) {
    if (name.empty()) continue;
    if (role.kind == RoleKind::histogram) {
      out.*role.histogram = TRY(add_histograms(name, metric));
      if (out.*role.histogram) return {};
      continue;
    }
    Series series = named(name, metric, role.kind);
    if (series.empty()) continue;
    out.*role.number = TRY(combine(std::move(series), role.kind));
    return {};
  }
  return {};
}

bool is_missing(const EngineRole& role, const ServingState& state) {
  return role.number != nullptr ? !(state.*role.number) : !(state.*role.histogram);
}

}  // namespace

Result<EngineReading> read_engine(std::string_view text, const EngineNames* wanted,
                                  std::string_view model) {
  const auto engines = wanted != nullptr ? std::span(wanted, 1) : engine_table();
  const WantedNames names(sample_names(engines));
  const Exposition page = TRY(read_exposition(text, names));
  const EnginePage of{.names = names, .page = page};
  const EngineNames* engine = recognise(of, engines);
  if (engine == nullptr) return no_engine(engines);
  // Other engines' series may have labels that mean something else.
  const WantedNames own(sample_names(std::span(engine, 1)));
  Series series;
  for (const ExpositionSample& each : page.samples)
    if (own.find(names[each.name])) series.push_back(&each);
  const auto models = models_of(of, series, engine->model_label);
  const std::string_view chosen = TRY(choose_model(models, model));
  std::erase_if(series, [&](const ExpositionSample* each) {
    const std::string_view here = page.label(*each, engine->model_label);
    return here != chosen && (!here.empty() || models.size() > 1);
  });

  EngineReading out{.engine = std::string(engine->engine),
                    .promise_possible = engine->promise_possible(),
                    .model = unescape_label(chosen)};
  const RoleReader reader(of, *engine, std::move(series));
  for (const EngineRole& role : engine_roles()) TRY(reader.read(role, out.state));
  if (engine->running_has_waiting && out.state.running) {
    // The two are read one after the other: a request may pass from one to the other meanwhile.
    if (out.state.waiting)
      out.state.running = std::max(*out.state.running - *out.state.waiting, 0.0);
    else
      out.state.running.reset();
  }
  for (const EngineRole& role : engine_roles())
    if (is_missing(role, out.state)) out.missing.push_back(role.text);
  return out;
}

}  // namespace derate
