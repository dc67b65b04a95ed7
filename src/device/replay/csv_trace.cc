#include "device/replay/csv_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>

#include "base/text.h"
#include "core/chip_facts.h"
#include "device/replay/trace_text.h"

namespace derate {
namespace {

constexpr double kBytesPerMib = 1024.0 * 1024.0;
constexpr std::string_view kTime = "t";
constexpr std::string_view kLabel = "label";
constexpr std::int64_t kLatest = 7'258'118'400;  // the year 2200
// A memory clock tells a chip when it is this near to the chip's own.
constexpr double kMemoryClockTolerance = 0.01;

// Digits with at most nine after a point, exact to the nanosecond, which a double is not. (And a
// long double's std::from_chars reads past the end of its range in libstdc++ 12.)
std::optional<Duration> unix_time(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  const auto point = text.find('.');
  const std::string_view whole = text.substr(0, point);
  std::string fraction(point == std::string_view::npos ? "" : text.substr(point + 1));
  if (whole.empty() || whole.find_first_not_of(kDigits) != std::string_view::npos ||
      fraction.find_first_not_of(kDigits) != std::string::npos || fraction.size() > 9)
    return std::nullopt;
  fraction.resize(9, '0');
  const auto whole_seconds = parse_integer(whole);
  if (!whole_seconds || *whole_seconds > kLatest) return std::nullopt;
  return std::chrono::seconds(*whole_seconds) + Duration(*parse_integer(fraction));
}

using S = Sample;
using A = Activity;
constexpr Column kCsvColumns[] = {
    number_column<&S::power_average>("p_avg_mw", 1000, 0, "field 185, mW"),
    number_column<&S::power_instant>("p_inst_mw", 1000, 0, "field 186, mW"),
    number_column<&S::energy>("energy_mj", 1000, 0, "energy counter, mJ"),
    number_column<&S::gpu_utilisation>("util_gpu", 100, 4, "GPU utilisation, %"),
    number_column<&S::memory_utilisation>("util_mem", 100, 4, "memory utilisation, %"),
    number_column<&S::sm_clock>("sm_mhz", 1, 3, "SM clock, MHz"),
    number_column<&S::memory_clock>("mem_mhz", 1, 3, "memory clock, MHz"),
    number_column<&S::temperature>("temp_c", 1, 3, "temperature, degrees Celsius"),
    bits_column<&S::throttle_reasons>("reasons", "throttle reasons, NVML's bits"),
    number_column<&A::graphics>("gpm_gr", 100, 4, "GPM graphics, %"),
    number_column<&A::sm>("gpm_sm", 100, 4, "GPM SM, %"),
    number_column<&A::occupancy>("gpm_occ", 100, 4, "GPM occupancy, %"),
    number_column<&A::integer>("gpm_int", 100, 4, "GPM integer, %"),
    number_column<&A::tensor>("gpm_tensor", 100, 4, "GPM any tensor, %"),
    number_column<&A::dram>("gpm_dram", 100, 4, "GPM DRAM bandwidth, %"),
    number_column<&A::fp64>("gpm_fp64", 100, 4, "GPM FP64, %"),
    number_column<&A::fp32>("gpm_fp32", 100, 4, "GPM FP32, %"),
    number_column<&A::fp16>("gpm_fp16", 100, 4, "GPM FP16, %"),
    number_column<&A::pcie_tx>("gpm_pcie_tx", 1 / kBytesPerMib, 4, "GPM PCIe sent, MiB/s"),
    number_column<&A::pcie_rx>("gpm_pcie_rx", 1 / kBytesPerMib, 4, "GPM PCIe received, MiB/s"),
};

bool is_gpm(const Column& column) { return std::string_view(column.name).starts_with("gpm_"); }

bool is_nan(std::string_view cell) {
  const std::string lower = to_lower(cell);
  return lower == "nan" || lower == "-nan";
}

// The second part of the rule at the top of the header.
bool all_zero(const Activity& a) {
  if (!a.dram && !a.pcie_tx && !a.pcie_rx) return false;
  for (const auto& share :
       {a.graphics, a.sm, a.occupancy, a.integer, a.tensor, a.dram, a.fp64, a.fp32, a.fp16})
    if (share.value_or(Fraction()) != Fraction()) return false;
  return a.pcie_tx.value_or(BytesPerSecond()) == BytesPerSecond() &&
         a.pcie_rx.value_or(BytesPerSecond()) == BytesPerSecond();
}

class CsvParser {
 public:
  CsvParser(std::string_view text, std::string_view name) : lines_(text, name) {}

  Result<Trace> parse() {
    const auto names = next_line();
    if (!names)
      return Error{Errc::bad_data, fmt::format("{}: the line of column names is missing or cut off",
                                               lines_.next_place())};
    layout_ = TRY(read_layout(*names, kCsvColumns, kTime, kLabel).with(lines_.place()));
    while (const auto line = next_line()) TRY(read_row(*line).with(lines_.place()));
    if (lines_.torn()) trace_.notes.push_back(lines_.torn_note());
    return std::move(trace_);
  }

 private:
  std::optional<std::string_view> next_line() {
    auto line = lines_.next();
    if (line && line->ends_with('\r')) line->remove_suffix(1);
    return line;
  }

  Result<void> read_row(std::string_view line) {
    const std::vector<std::string_view> cells = split(line, ',');
    if (cells.size() != layout_.columns.size())
      return Error{Errc::bad_data, fmt::format("{} cells in {}: allowed are {}, one a column",
                                               cells.size(), shown(line), layout_.columns.size())};
    const Duration t = TRY(read_time(cells[layout_.time]));
    if (trace_.samples.empty()) trace_.start = WallTime(t);
    last_ = t;
    Sample sample;
    sample.time = Instant(t - trace_.start.time_since_epoch());
    sample.source = SampleSource::replayed;
    bool counters_good = true;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      const Column* column = layout_.columns[i];
      if (column == nullptr) continue;
      if (is_gpm(*column) && is_nan(cells[i]))
        counters_good = false;
      else
        TRY(take_cell(*column, cells[i], sample));
    }
    if (!counters_good || all_zero(sample.activity)) sample.activity = {};
    if (layout_.label) add_label(sample.time, cells[*layout_.label]);
    trace_.samples.push_back(sample);
    return {};
  }

  Result<Duration> read_time(std::string_view cell) const {
    const auto read = unix_time(cell);
    if (read && *read >= last_) return *read;
    return Error{
        Errc::bad_data,
        fmt::format("{} {}: allowed are Unix seconds up to the year 2200, not less than in "
                    "the row before",
                    kTime, shown(cell))};
  }

  void add_label(Instant time, std::string_view text) {
    const bool goes_on = trace_.labels.empty() ? text.empty() : text == trace_.labels.back().text;
    if (!goes_on) trace_.labels.push_back({time, std::string(text)});
  }

  Lines lines_;
  Layout layout_;
  Trace trace_;
  Duration last_{};
};

// The chip whose memory clock is the highest that the trace shows: an idle GPU may lower its own.
const ChipFacts* chip_of(const Trace& trace) {
  Megahertz highest{};
  for (const Sample& sample : trace.samples)
    highest = std::max(highest, sample.memory_clock.value_or(Megahertz()));
  for (const ChipFacts& facts : chip_facts())
    if (std::abs(highest / facts.memory_clock - 1) <= kMemoryClockTolerance) return &facts;
  return nullptr;
}

const Capability* find_entry(std::span<const Capability> catalogue, std::string_view chip,
                             const ChipFacts* facts) {
  for (const Capability& entry : catalogue) {
    const std::string& name = entry.id.name;
    if (!chip.empty() && to_lower(name) == to_lower(chip)) return &entry;
    if (facts && (facts_of_chip(name) == facts || facts_of_product(name) == facts)) return &entry;
  }
  return nullptr;
}

// What stands in for a catalogue's entry: what the facts tell and the trace shows.
Capability observed_capability(const Trace& trace, const ChipFacts* facts) {
  std::set<Megahertz> sm, memory;
  for (const Sample& sample : trace.samples) {
    if (sample.sm_clock && *sample.sm_clock > Megahertz()) sm.insert(*sample.sm_clock);
    if (sample.memory_clock && *sample.memory_clock > Megahertz())
      memory.insert(*sample.memory_clock);
  }
  if (facts) sm.insert(facts->highest_clock);
  Capability capability;
  if (facts) capability.id.name = facts->chip;
  if (facts) capability.architecture = facts->architecture;
  capability.sm_clocks.assign(sm.begin(), sm.end());
  capability.memory_clocks.assign(memory.begin(), memory.end());
  return capability;
}

Result<void> add_capability(Trace& trace, std::string_view name, const CsvOptions& options) {
  const ChipFacts* facts = options.chip.empty() ? chip_of(trace) : facts_of_chip(options.chip);
  const Capability* entry = find_entry(options.catalogue, options.chip, facts);
  if (!options.chip.empty() && !facts && !entry) {
    std::string known;
    for (const ChipFacts& row : chip_facts()) known += fmt::format(" {}", row.chip);
    return Error{Errc::not_found, fmt::format("chip {}: known are{}", shown(options.chip), known)};
  }
  if (!facts && !entry)
    trace.notes.push_back(fmt::format("{}: no memory clock of a known chip; name the chip", name));
  if (!entry)
    trace.notes.push_back(fmt::format("{}: supported clocks are taken from those seen", name));
  Capability& capability = trace.capability;
  capability = entry ? *entry : observed_capability(trace, facts);
  if (!capability.flat_voltage_end && facts) capability.flat_voltage_end = facts->flat_voltage_end;
  // What the trace gives counts, not what the chip could.
  const auto any = [&](auto has) {
    return std::any_of(trace.samples.begin(), trace.samples.end(), has);
  };
  capability.energy_counter = any([](const Sample& s) { return s.energy.has_value(); });
  capability.instant_power = any([](const Sample& s) { return s.power_instant.has_value(); });
  capability.averaged_power = any([](const Sample& s) { return s.power_average.has_value(); });
  capability.activity_counters = any([](const Sample& s) { return s.activity != Activity{}; });
  capability.process_list = false;
  return {};
}

}  // namespace

std::span<const Column> csv_columns() { return kCsvColumns; }

Result<Trace> parse_csv_trace(std::string_view text, std::string_view name,
                              const CsvOptions& options) {
  Trace trace = TRY(CsvParser(text, name).parse());
  TRY(add_capability(trace, name, options));
  return trace;
}

Result<Trace> parse_any_trace(std::string_view text, std::string_view name,
                              const CsvOptions& options) {
  if (text.starts_with('#')) return parse_trace(text, name);
  return parse_csv_trace(text, name, options).with("not a Derate trace, read as CSV");
}

Result<Trace> load_trace(const std::string& path, const CsvOptions& options) {
  const std::string text = TRY(read_file(path));
  return parse_any_trace(text, path, options);
}

}  // namespace derate
