#include "device/sim/serving/serving_law.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/suggest.h"
#include "base/text.h"
#include "device/sim/csv_table.h"

namespace derate {

// data/serving.csv, put into the program at build time.
extern const char* const kBuiltInServing;

namespace {

constexpr std::array<const char*, kStepParts> kSeconds = {
    "host_s",         "weights_s",          "small_s",       "per_sequence_s",
    "per_kv_token_s", "per_prompt_token_s", "prefill_step_s"};
constexpr std::array<const char*, kStepParts> kWatts = {
    "host_w", "weights_w", "small_w", "sequences_w", "kv_w", "prompt_w", "prefill_w"};

constexpr std::size_t at(StepPart part) { return static_cast<std::size_t>(part); }

// Of a part's time, the share that memory takes; empty: it is the host's, at any clock the same.
std::optional<double> memory_share(const ServingLaw& law, StepPart part) {
  switch (part) {
    case StepPart::host:
      return std::nullopt;
    case StepPart::weights:
      return 1;
    case StepPart::sequences:
    case StepPart::kv:
      return law.memory_share;
    case StepPart::small:
    case StepPart::prompt:
    case StepPart::prefill:
      return 0;
  }
  return 0;
}

constexpr double kMostNumber = 1e9;

struct LawReader {
  const Csv& csv;
  std::string_view file;

  Result<double> number(const Csv::Row& row, const char* name) const {
    return number_in(csv, row, TRY(column(csv, name, file)), 0, kMostNumber, file);
  }
  Result<std::string> text(const Csv::Row& row, const char* name) const {
    return std::string(row.cells[TRY(column(csv, name, file))]);
  }
};

Result<ServingLaw> read_law(const LawReader& reader, const Csv::Row& row) {
  ServingLaw law;
  law.chip = TRY(reader.text(row, "chip"));
  law.name = TRY(reader.text(row, "name"));
  law.source = TRY(reader.text(row, "source"));
  law.assumed = TRY(reader.number(row, "assumed")) != 0;
  law.top = Megahertz(TRY(reader.number(row, "top_mhz")));
  law.memory_share = TRY(reader.number(row, "memory_share"));
  for (std::size_t i = 0; i < kStepParts; ++i) {
    law.seconds[i] = TRY(reader.number(row, kSeconds[i]));
    law.watts[i] = TRY(reader.number(row, kWatts[i]));
  }
  law.voltage_exponent = TRY(reader.number(row, "voltage_exponent"));
  law.kv_tokens = TRY(reader.number(row, "kv_tokens"));
  law.step_tokens = static_cast<int>(TRY(reader.number(row, "step_tokens")));
  if (law.top <= Megahertz(0) || law.step_tokens < 1 || law.kv_tokens < 1 || law.memory_share > 1)
    return Error{Errc::bad_data,
                 fmt::format("{}:{}: top_mhz, step_tokens and kv_tokens must be above 0, "
                             "memory_share at most 1",
                             reader.file, row.line)};
  return law;
}

}  // namespace

Result<std::vector<ServingLaw>> parse_serving_laws(std::string_view text, std::string_view file) {
  const Csv csv = TRY(parse_csv(text, file));
  std::vector<ServingLaw> out;
  for (const Csv::Row& row : csv.rows) out.push_back(TRY(read_law({csv, file}, row)));
  return out;
}

const std::vector<ServingLaw>& serving_laws() {
  static const std::vector<ServingLaw> laws = [] {
    auto parsed = parse_serving_laws(kBuiltInServing, "data/serving.csv");
    CHECK(parsed.ok());
    return std::move(*parsed);
  }();
  return laws;
}

Result<ServingLaw> find_serving_law(const SimChip& chip, std::string_view name) {
  std::string known;
  for (const ServingLaw& law : serving_laws()) {
    if (law.chip != chip.name) continue;
    if (to_lower(law.name) == to_lower(name)) return law;
    known += (known.empty() ? "" : ", ") + law.name;
  }
  return Error{Errc::not_found, fmt::format("{} has no engine '{}'{}", chip.name, name,
                                            choices(name, "; there are: ", known))};
}

StepModel::StepModel(const ServingLaw& law, const SimChip& chip, Megahertz clock)
    : idle_w_(chip.idle_power.at(clock)) {
  const double slower = law.top / clock;
  const double memory = chip.memory_roof ? chip.memory_roof->slowdown(clock) : 1;
  const double voltage = std::pow(chip.voltage.at(clock), law.voltage_exponent);
  for (std::size_t i = 0; i < kStepParts; ++i) {
    const auto share = memory_share(law, static_cast<StepPart>(i));
    seconds_[i] = law.seconds[i] * (share ? *share * memory + (1 - *share) * slower : 1);
    watts_[i] = law.watts[i] * voltage * (share ? *share + (1 - *share) / slower : 1 / slower);
  }
}

StepParts StepModel::parts(const StepLoad& load) const {
  StepParts out = seconds_;
  out[at(StepPart::sequences)] *= load.sequences;
  out[at(StepPart::kv)] *= load.kv_tokens;
  out[at(StepPart::prompt)] *= load.prompt_tokens;
  if (load.prompt_tokens <= 0) out[at(StepPart::prefill)] = 0;
  return out;
}

double StepModel::seconds(const StepLoad& load) const {
  const StepParts all = parts(load);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

Watts StepModel::power(const StepLoad& load) const {
  const StepParts all = parts(load);
  const double time = std::accumulate(all.begin(), all.end(), 0.0);
  return Watts(idle_w_ + std::inner_product(all.begin(), all.end(), watts_.begin(), 0.0) / time);
}

StepModel::Energy StepModel::energy(const StepLoad& load) const {
  const StepParts all = parts(load);
  Energy out;
  for (std::size_t i = 0; i < kStepParts; ++i) {
    const double joules = all[i] * (idle_w_ + watts_[i]);
    const auto part = static_cast<StepPart>(i);
    out.all_j += joules;
    if (load.sequences <= 0 || part == StepPart::prompt || part == StepPart::prefill)
      out.prompts_j += joules;
  }
  return out;
}

}  // namespace derate
