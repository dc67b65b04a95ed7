#include "config/chip_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "config/toml_values.h"

namespace derate {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 20, kMostSources = 1024;
// NVML's and the simulator's own fields for names have 96 and 32 bytes.
constexpr std::size_t kLongestChipName = 31, kLongestProduct = 95;

// toml++ keeps a node for each value: a file of a million rows is refused before it is read.
Result<void> check_size(std::string_view text, std::string_view file) {
  if (text.size() <= kLargestFile) return {};
  const auto head = text.substr(0, kLargestFile);
  return Error{
      Errc::bad_config,
      fmt::format("{}:{}:1: the file has {} bytes: allowed are {}, which end here", file,
                  1 + std::count(head.begin(), head.end(), '\n'), text.size(), kLargestFile)};
}

Result<const toml::array*> list_of(const SettingInfo& info, const toml::node& node,
                                   std::string_view file, const char* wanted) {
  const toml::array* list = node.as_array();
  if (list == nullptr || list->empty())
    return bad(file, node, fmt::format("{} {}: wanted {}", info.key, shown(node), wanted));
  if (list->size() > kMostClocks)
    return bad(file, *list->get(kMostClocks),
               fmt::format("{}: {} values: allowed are {}", info.key, list->size(), kMostClocks));
  return list;
}

Result<double> clock_after(std::optional<double> before, const SettingInfo& info,
                           const toml::node& node, std::string_view file) {
  double clock = 0;
  TRY(assign(clock, {info.section, info.key, "MHz", "", 1, kHighestMegahertz}, node, file));
  if (before && clock <= *before)
    return bad(
        file, node,
        fmt::format("{}: {} MHz after {}: wanted clocks that ascend", info.key, clock, *before));
  return clock;
}

}  // namespace

// assign_keys() finds these by their types.
static Result<void> assign(ClockList& value, const SettingInfo& info, const toml::node& node,
                           std::string_view file) {
  value.mhz.clear();
  const toml::array* list = TRY(list_of(info, node, file, "a list of clocks"));
  for (const toml::node& item : *list) {
    const auto before = value.mhz.empty() ? std::nullopt : std::optional(value.mhz.back());
    value.mhz.push_back(TRY(clock_after(before, info, item, file)));
    if (value.mhz.back() != std::floor(value.mhz.back()))
      return bad(file, item,
                 fmt::format("{} {}: wanted whole megahertz, as drivers list them", info.key,
                             value.mhz.back()));
  }
  return {};
}

static Result<void> assign(ClockPoints& value, const SettingInfo& info, const toml::node& node,
                           std::string_view file) {
  value = {};
  if (node.value_exact<std::string>() == "unknown") {
    value.unknown = true;
    return {};
  }
  const toml::array* list = TRY(list_of(info, node, file, "points, as [[1005, 80], [1980, 127]]"));
  for (const toml::node& item : *list) {
    const toml::array* point = item.as_array();
    if (point == nullptr || point->size() != 2)
      return bad(file, item,
                 fmt::format("{} {}: wanted a point, [MHz, value]", info.key, shown(item)));
    const auto before =
        value.points.empty() ? std::nullopt : std::optional(value.points.back().first);
    const double clock = TRY(clock_after(before, info, *point->get(0), file));
    double number = 0;
    TRY(assign(number, info, *point->get(1), file));
    value.points.emplace_back(clock, number);
  }
  return {};
}

namespace {

Error wrong(const ChipFile& c, const std::string& key, const std::string& message) {
  return {Errc::bad_config, fmt::format("{}: {}", c.place_of(key), message)};
}

Result<void> check_text(const std::string& text, const std::string& where, const char* what,
                        std::size_t longest) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return c >= ' '; });
  if (!text.empty() && text.size() <= longest && plain) return {};
  return Error{Errc::bad_config,
               fmt::format("{}: {} of {} bytes: wanted 1 to {}, without control characters", where,
                           what, text.size(), longest)};
}

// The name goes into tables, CSV files, paths of results and option values.
Result<void> check_identity(const ChipFile& c) {
  TRY(check_text(c.name, c.place_of("chip.name"), "a name", kLongestChipName));
  TRY(check_text(c.product, c.place_of("chip.product"), "a product", kLongestProduct));
  const auto good = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.';
  };
  if (!std::all_of(c.name.begin(), c.name.end(), good) || is_chip_path(c.name))
    return wrong(c, "chip.name",
                 fmt::format("name \"{}\": wanted letters, digits, '-', '_' and '.', and no "
                             "\".toml\" at its end",
                             c.name));
  if (!architecture_of(c.architecture))
    return wrong(c, "chip.architecture",
                 fmt::format("architecture \"{}\": allowed are pascal, volta, turing, ampere, ada, "
                             "hopper, blackwell, unknown",
                             c.architecture));
  return {};
}

// `where` is the place of the table for what is not in it.
Result<void> check_clocks(const ChipClocks& clocks, const std::string& where) {
  const auto refuse = [&](const std::string& message) {
    return Error{Errc::bad_config, fmt::format("{}: {}", where, message)};
  };
  if (!clocks.memory_mhz) return refuse("no memory_mhz: wanted the memory clock");
  const int grid =
      (clocks.lowest_mhz ? 1 : 0) + (clocks.step_mhz ? 1 : 0) + (clocks.highest_mhz ? 1 : 0);
  if (clocks.sm_mhz.mhz.empty() ? grid != 3 : grid != 0)
    return refuse("wanted SM clocks, either sm_mhz or all of lowest_mhz, step_mhz, highest_mhz");
  if (grid == 0) return {};
  if (*clocks.lowest_mhz > *clocks.highest_mhz)
    return refuse(
        fmt::format("lowest_mhz {} above highest_mhz {}", *clocks.lowest_mhz, *clocks.highest_mhz));
  const double count = (*clocks.highest_mhz - *clocks.lowest_mhz) / *clocks.step_mhz + 1;
  if (count >= static_cast<double>(kMostClocks) + 1)
    return refuse(fmt::format("{:.0f} SM clocks: allowed are {}", count, kMostClocks));
  return {};
}

Result<void> check_special_clocks(const ChipFile& c) {
  const auto clocks = sm_clocks(c.clocks);
  for (const auto& [key, clock] :
       {std::pair("unused_mhz", c.unused_mhz), std::pair("efficient_mhz", c.efficient_mhz)})
    if (clock && !std::binary_search(clocks.begin(), clocks.end(), *clock))
      return wrong(c, fmt::format("clocks.{}", key),
                   fmt::format("{} {}: wanted one of the SM clocks, {} to {}", key, *clock,
                               clocks.front(), clocks.back()));
  return {};
}

Result<void> check_lower_memory_clocks(const ChipFile& c) {
  if (c.lower_memory_clocks.size() > kMostLowerMemoryClocks)
    return wrong(c, "lower_memory_clock",
                 fmt::format("{} lower memory clocks: allowed are {}", c.lower_memory_clocks.size(),
                             kMostLowerMemoryClocks));
  double above = *c.clocks.memory_mhz;
  for (const ChipClocks& each : c.lower_memory_clocks) {
    if (*each.memory_mhz >= above)
      return wrong(c, "lower_memory_clock",
                   fmt::format("memory_mhz {} after {}: wanted memory clocks that descend, the "
                               "highest in [clocks]",
                               *each.memory_mhz, above));
    above = *each.memory_mhz;
  }
  return {};
}

Result<void> check_power(const ChipFile& c) {
  const auto& power = c.power;
  if (!power.default_w) return wrong(c, "power", "no default_w in [power]: wanted the power limit");
  if (power.lowest_w.value_or(*power.default_w) > *power.default_w)
    return wrong(c, "power.lowest_w",
                 fmt::format("lowest_w {} above default_w {}", *power.lowest_w, *power.default_w));
  if (power.highest_w.value_or(*power.default_w) < *power.default_w)
    return wrong(
        c, "power.highest_w",
        fmt::format("highest_w {} below default_w {}", *power.highest_w, *power.default_w));
  return {};
}

Result<void> check_curves(const ChipFile& c) {
  if (c.idle.points.empty() && !c.idle.unknown)
    return wrong(c, "idle.watts",
                 "[idle] watts: wanted points, as [[1005, 80], [1980, 127]], or \"unknown\"");
  if (c.voltage.points.empty() && !c.voltage.unknown)
    return wrong(c, "voltage.curve",
                 "[voltage] curve: wanted points, as [[1005, 1.0], [1980, 1.5]], or \"unknown\"");
  const auto& points = c.voltage.points;
  for (std::size_t i = 1; i < points.size(); ++i)
    if (points[i].second < points[i - 1].second)
      return wrong(c, "voltage.curve",
                   fmt::format("curve: {} at {} MHz after {}: wanted a voltage that does not fall",
                               points[i].second, points[i].first, points[i - 1].second));
  if (!c.same_silicon.chip.empty() && c.voltage.unknown)
    return wrong(c, "same_silicon.chip",
                 "workloads of another chip need this one's voltage curve for their power");
  return {};
}

Result<void> check_sensors(const ChipFile& c) {
  const std::vector<std::string> known = {"gpu_utilisation", "memory_utilisation",
                                          "power_instant",   "power_average",
                                          "energy",          "activity"};
  for (const std::string& each : c.sensors.counters)
    if (std::find(known.begin(), known.end(), each) == known.end())
      return wrong(
          c, "sensors.counters",
          fmt::format("unknown counter \"{}\"{}", each,
                      choices(each, "; there are ", fmt::format("{}", fmt::join(known, ", ")))));
  for (const auto& [key, where] : c.where) {
    const std::string section = key.substr(0, key.find('.'));
    const bool counter = std::find(known.begin(), known.end(), section) != known.end();
    if (counter && !c.sensors.has(section))
      return wrong(c, key,
                   fmt::format("[{}] of a counter that [sensors] counters does not name", section));
  }
  if (c.where.contains("utilisation.refresh_s") && !c.sensors.has("gpu_utilisation") &&
      !c.sensors.has("memory_utilisation"))
    return wrong(c, "utilisation.refresh_s",
                 "[utilisation] of counters that [sensors] counters does not name");
  return {};
}

Result<void> check_word(const ChipFile& c, const std::string& key, const std::string& word,
                        const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), word) != known.end()) return {};
  return wrong(c, "driver." + key,
               fmt::format("{} \"{}\": allowed are {}", key, word, fmt::join(known, ", ")));
}

Result<void> check_driver(const ChipFile& c) {
  TRY(check_word(c, "application_clocks", c.driver.application_clocks,
                 {"set", "deprecated", "absent"}));
  TRY(check_word(c, "memory_lock", c.driver.memory_lock, {"offered", "absent", "by_architecture"}));
  return check_word(c, "process_utilisation", c.driver.process_utilisation, {"old", "new"});
}

Result<void> check_together(const ChipFile& c) {
  TRY(check_identity(c));
  TRY(check_clocks(c.clocks, c.place_of("clocks")));
  TRY(check_special_clocks(c));
  TRY(check_lower_memory_clocks(c));
  TRY(check_power(c));
  TRY(check_curves(c));
  const auto& roof = c.memory_roof;
  if (roof.full_from_mhz.has_value() != roof.exponent.has_value())
    return wrong(c, "memory_roof", "[memory_roof] wants both full_from_mhz and exponent");
  if (c.same_silicon.chip.empty() && c.where.contains("same_silicon"))
    return wrong(c, "same_silicon", "[same_silicon] wants a chip");
  if (c.thermal.slowdown_celsius <= c.thermal.ambient_celsius)
    return wrong(c, "thermal.slowdown_celsius",
                 fmt::format("slowdown_celsius {}: wanted more than ambient_celsius, {}",
                             c.thermal.slowdown_celsius, c.thermal.ambient_celsius));
  if (c.switching.p99_s < c.switching.median_s)
    return wrong(c, "switch.p99_s",
                 fmt::format("p99_s {}: wanted at least median_s, {}", c.switching.p99_s,
                             c.switching.median_s));
  TRY(check_driver(c));
  return check_sensors(c);
}

// Reads the tables of a [[NAME]].
template <class Entry, class Visit, class Check>
Result<void> read_entries(std::vector<Entry>& out, const char* name, const toml::node& node,
                          std::string_view file, Visit visit, Check check) {
  const toml::array* list = node.as_array();
  if (list == nullptr)
    return bad(file, node, fmt::format("{}: wanted entries like [[{}]]", name, name));
  if (list->size() > kMostSources)
    return bad(file, *list->get(kMostSources),
               fmt::format("{} entries [[{}]]: allowed are {}", list->size(), name, kMostSources));
  for (const toml::node& entry : *list) {
    const toml::table* table = entry.as_table();
    if (table == nullptr)
      return bad(file, entry, fmt::format("{}: wanted entries like [[{}]]", name, name));
    Entry one;
    TRY(assign_keys(*table, fmt::format("[[{}]]", name), file,
                    [&](auto&& take) { visit(one, take); }));
    TRY(check(one, place(file, table->source())));
    out.push_back(std::move(one));
  }
  return {};
}

Result<void> read_sources(ChipFile& out, const toml::node& node, std::string_view file) {
  return read_entries(
      out.sources, "source", node, file,
      [](ChipSource& source, auto& take) { visit_chip_source(source, take); },
      [](const ChipSource& source, const std::string& where) -> Result<void> {
        TRY(check_text(source.what, where, "what", 200));
        return check_text(source.source, where, "source", 1000);
      });
}

Result<void> read_memory_clocks(ChipFile& out, const toml::node& node, std::string_view file) {
  return read_entries(
      out.lower_memory_clocks, "lower_memory_clock", node, file,
      [](LowerMemoryClock& clocks, auto& take) { visit_lower_memory_clock(clocks, take); },
      [](const ChipClocks& clocks, const std::string& where) {
        return check_clocks(clocks, where);
      });
}

}  // namespace

std::vector<double> sm_clocks(const ChipClocks& clocks) {
  if (!clocks.sm_mhz.mhz.empty()) return clocks.sm_mhz.mhz;
  std::vector<double> out;
  constexpr double kRounding = 1e-6;
  for (int i = 0;; ++i) {
    const double clock = *clocks.lowest_mhz + *clocks.step_mhz * i;
    if (clock > *clocks.highest_mhz + kRounding) return out;
    out.push_back(std::floor(clock + kRounding));
  }
}

bool ChipSensors::has(std::string_view counter) const {
  return std::find(counters.begin(), counters.end(), counter) != counters.end();
}

const std::string& ChipFile::place_of(const std::string& key) const {
  const auto at = where.find(key);
  return at == where.end() ? file : at->second;
}

Result<ChipFile> parse_chip_file(std::string_view text, std::string_view file) {
  TRY(check_size(text, file));
  const toml::table table = TRY(parse_toml(text, file));
  ChipFile out;
  out.file = file;
  const auto visit = [](auto& all, auto&& each) { visit_chip_file(all, each); };
  for (const auto& [section, node] : table) {
    out.where[std::string(section.str())] = place(file, node.source());
    if (section.str() == "source")
      TRY(read_sources(out, node, file));
    else if (section.str() == "lower_memory_clock")
      TRY(read_memory_clocks(out, node, file));
    else
      TRY(read_section(out, section.str(), node, file, visit,
                       "[[lower_memory_clock]], [[source]]"));
  }
  if (out.product.empty()) out.product = out.name;
  TRY(check_together(out));
  return out;
}

Result<ChipFile> load_chip_file(const std::string& path) {
  return parse_chip_file(TRY(read_file(path)), path);
}

std::optional<Architecture> architecture_of(std::string_view word) {
  for (int i = 0; i <= static_cast<int>(Architecture::blackwell); ++i)
    if (word == to_string(static_cast<Architecture>(i))) return static_cast<Architecture>(i);
  return std::nullopt;
}

bool is_chip_path(std::string_view name) {
  return name.find('/') != name.npos || name.ends_with(".toml");
}

}  // namespace derate
