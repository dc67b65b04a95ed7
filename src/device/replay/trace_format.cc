#include "device/replay/trace_format.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/json.h"
#include "device/replay/trace_text.h"

namespace derate {
namespace {

using std::chrono::microseconds;

using S = Sample;
using A = Activity;
constexpr Column kColumns[] = {
    number_column<&S::power_usage>("power_usage_mw", 1000, 0,
                                   "board power, nvmlDeviceGetPowerUsage"),
    number_column<&S::power_instant>("power_instant_mw", 1000, 0,
                                     "board power, field 186 (newest 20 ms)"),
    number_column<&S::power_average>("power_average_mw", 1000, 0,
                                     "board power, field 185 (mean of 1 s)"),
    number_column<&S::energy>("energy_mj", 1000, 0, "energy counter since the driver was loaded"),
    number_column<&S::sm_clock>("sm_clock_mhz", 1, 3, "SM clock"),
    number_column<&S::memory_clock>("memory_clock_mhz", 1, 3, "memory clock"),
    number_column<&S::gpu_utilisation>("gpu_util_pct", 100, 4,
                                       "time with at least one kernel running"),
    number_column<&S::memory_utilisation>("memory_util_pct", 100, 4, "time with memory traffic"),
    number_column<&S::temperature>("temperature_c", 1, 3, "GPU temperature, degrees Celsius"),
    bits_column<&S::throttle_reasons>("throttle_bits", "NVML's clock event (throttle) reasons"),
    number_column<&A::graphics>("graphics_pct", 100, 4, "GPM: graphics or compute engine busy"),
    number_column<&A::sm>("sm_pct", 100, 4, "GPM: SM cycles with a warp"),
    number_column<&A::occupancy>("occupancy_pct", 100, 4, "GPM: warps resident, of those possible"),
    number_column<&A::integer>("integer_pct", 100, 4, "GPM: integer pipe busy"),
    number_column<&A::tensor>("tensor_pct", 100, 4, "GPM: any tensor pipe busy"),
    number_column<&A::dram>("dram_pct", 100, 4, "GPM: DRAM bandwidth, of its peak"),
    number_column<&A::fp64>("fp64_pct", 100, 4, "GPM: FP64 pipe busy"),
    number_column<&A::fp32>("fp32_pct", 100, 4, "GPM: FP32 pipe busy"),
    number_column<&A::fp16>("fp16_pct", 100, 4, "GPM: FP16 pipe busy"),
    number_column<&A::pcie_tx>("pcie_tx_bytes_per_s", 1, 0, "GPM: PCIe traffic sent by the GPU"),
    number_column<&A::pcie_rx>("pcie_rx_bytes_per_s", 1, 0,
                               "GPM: PCIe traffic received by the GPU"),
    count_column<&S::tenants>("tenants", "processes that hold a compute context"),
};

constexpr double kHighestClock = 100'000;  // MHz
constexpr double kHighestPower = 100'000;  // W

std::string format_utc(WallTime time) {
  using namespace std::chrono;
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(floor<microseconds>(time) - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", int(date.year()),
                     unsigned(date.month()), unsigned(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count(), clock.subseconds().count());
}

// Exactly what format_utc writes; the fraction may be left out.
std::optional<WallTime> parse_utc(std::string_view text) {
  using namespace std::chrono;
  bool good = text.size() == 20 || text.size() == 27;
  const auto part = [&](std::size_t at, std::size_t length, char before) {
    int value = 0;
    if (!good) return value;
    const char* first = text.data() + at;
    const auto [end, error] = std::from_chars(first, first + length, value);
    good = error == std::errc{} && end == first + length && value >= 0 &&
           (at == 0 || text[at - 1] == before);
    return value;
  };
  const int year_part = part(0, 4, 0), month_part = part(5, 2, '-'), day_part = part(8, 2, '-');
  const int hour = part(11, 2, 'T'), minute = part(14, 2, ':'), second = part(17, 2, ':');
  const int fraction = text.size() == 27 ? part(20, 6, '.') : 0;
  const year_month_day date{year(year_part), month(unsigned(month_part)), day(unsigned(day_part))};
  if (!good || !text.ends_with('Z') || !date.ok() || year_part < 1970 || year_part > 2200 ||
      hour > 23 || minute > 59 || second > 59)
    return std::nullopt;
  return WallTime(sys_days(date)) + hours(hour) + minutes(minute) + std::chrono::seconds(second) +
         microseconds(fraction);
}

// Whole numbers without a fraction: "952", not "952.0".
Json number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) return static_cast<long long>(value);
  return value;
}

Json numbers(const std::vector<Megahertz>& clocks) {
  Json list = Json::array();
  for (const Megahertz clock : clocks) list.push_back(number(clock.value()));
  return list;
}

Error bad(const char* key, const Json& value, const std::string& allowed) {
  const std::string dumped = json_text(value);
  return {Errc::bad_data, fmt::format("header {} {}: allowed is {}", key, shown(dumped), allowed)};
}

// The value of a key; null when it is absent.
const Json& at(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Result<std::optional<double>> read_number(const Json& object, const char* key, double lowest,
                                          double highest) {
  const Json& value = at(object, key);
  if (value.is_null()) return std::optional<double>();
  const double read = value.is_number() ? value.get<double>() : NAN;
  if (!(read >= lowest && read <= highest))
    return bad(key, value, fmt::format("a number in [{}, {}]", lowest, highest));
  return std::optional(read);
}

Result<std::string> read_text(const Json& object, const char* key) {
  const Json& value = at(object, key);
  if (value.is_null()) return std::string();
  if (!value.is_string()) return bad(key, value, "a text");
  return value.get<std::string>();
}

Result<bool> read_flag(const Json& object, const char* key) {
  const Json& value = at(object, key);
  if (value.is_null()) return false;
  if (!value.is_boolean()) return bad(key, value, "true or false");
  return value.get<bool>();
}

Result<std::vector<Megahertz>> read_clocks(const Json& object, const char* key) {
  const Json& value = at(object, key);
  std::vector<Megahertz> clocks;
  if (value.is_null()) return clocks;
  double last = 0;
  bool good = value.is_array();
  for (std::size_t i = 0; good && i < value.size(); ++i) {
    const double clock = value[i].is_number() ? value[i].get<double>() : NAN;
    good = clock > last && clock <= kHighestClock;
    last = clock;
    clocks.emplace_back(clock);
  }
  if (good) return clocks;
  return bad(key, value, fmt::format("a list of ascending clocks in (0, {}]", kHighestClock));
}

Result<Architecture> read_architecture(const Json& object) {
  const std::string name = TRY(read_text(object, "architecture"));
  std::string allowed = "one of";
  for (int i = 0; i <= static_cast<int>(Architecture::blackwell); ++i) {
    const auto architecture = static_cast<Architecture>(i);
    if (name == to_string(architecture)) return architecture;
    allowed += fmt::format(" {}", to_string(architecture));
  }
  if (name.empty()) return Architecture::unknown;
  return bad("architecture", at(object, "architecture"), allowed);
}

Result<std::optional<PowerLimits>> read_power_limits(const Json& object) {
  const char* key = "power_limits_watts";
  const Json& value = at(object, key);
  if (value.is_null()) return std::optional<PowerLimits>();
  const auto lowest = TRY(read_number(value, "lowest", 0, kHighestPower));
  const auto highest = TRY(read_number(value, "highest", 0, kHighestPower));
  const auto factory = TRY(read_number(value, "factory", 0, kHighestPower));
  if (!lowest || !highest || !factory || *lowest > *highest)
    return bad(key, value, "lowest, highest and factory, lowest <= highest");
  return std::optional(PowerLimits{Watts(*lowest), Watts(*highest), Watts(*factory)});
}

Result<GpuId> read_id(const Json& object) {
  const Json& value = at(object, "gpu");
  GpuId id;
  if (value.is_null()) return id;
  if (!value.is_object()) return bad("gpu", value, "an object");
  const double index = TRY(read_number(value, "index", 0, 65535)).value_or(0);
  if (index != std::floor(index)) return bad("index", value, "a whole number");
  id.index = static_cast<int>(index);
  id.uuid = TRY(read_text(value, "uuid"));
  id.pci_bus_id = TRY(read_text(value, "pci_bus_id"));
  id.name = TRY(read_text(value, "name"));
  return id;
}

Result<Capability> read_capability(const Json& object) {
  Capability c;
  c.id = TRY(read_id(object));
  c.architecture = TRY(read_architecture(object));
  c.sm_clocks = TRY(read_clocks(object, "sm_clocks_mhz"));
  c.memory_clocks = TRY(read_clocks(object, "memory_clocks_mhz"));
  c.power_limits = TRY(read_power_limits(object));
  if (const auto t = TRY(read_number(object, "slowdown_temperature_celsius", -100, 300)))
    c.slowdown_temperature = Celsius(*t);
  if (const auto f = TRY(read_number(object, "flat_voltage_end_mhz", 0, kHighestClock)))
    c.flat_voltage_end = Megahertz(*f);
  c.energy_counter = TRY(read_flag(object, "energy_counter"));
  c.instant_power = TRY(read_flag(object, "instant_power"));
  c.averaged_power = TRY(read_flag(object, "averaged_power"));
  c.activity_counters = TRY(read_flag(object, "activity_counters"));
  c.process_list = TRY(read_flag(object, "process_list"));
  return c;
}

Result<TraceHeader> read_header(const Json& object) {
  TraceHeader header;
  header.capability = TRY(read_capability(object));
  const auto start = parse_utc(TRY(read_text(object, "start")));
  if (!start)
    return bad("start", at(object, "start"), "UTC as 2025-01-31T23:59:59.000000Z, 1970 to 2200");
  header.start = *start;
  const auto interval = TRY(read_number(object, "interval_seconds", 0, 86400));
  header.interval = from_seconds(interval.value_or(0));
  const Json& tags = at(object, "tags");
  if (!tags.is_null() && !tags.is_object()) return bad("tags", tags, "an object of texts");
  for (const auto& [key, value] : tags.items())
    header.tags[key] = TRY(read_text(tags, key.c_str()));
  return header;
}

}  // namespace

std::span<const Column> trace_columns() { return kColumns; }

std::string format_header(const TraceHeader& header) {
  const Capability& c = header.capability;
  Json out;
  out["gpu"] = {{"index", c.id.index},
                {"uuid", c.id.uuid},
                {"pci_bus_id", c.id.pci_bus_id},
                {"name", c.id.name}};
  out["architecture"] = to_string(c.architecture);
  out["sm_clocks_mhz"] = numbers(c.sm_clocks);
  out["memory_clocks_mhz"] = numbers(c.memory_clocks);
  if (c.power_limits)
    out["power_limits_watts"] = {{"lowest", number(c.power_limits->lowest.value())},
                                 {"highest", number(c.power_limits->highest.value())},
                                 {"factory", number(c.power_limits->factory.value())}};
  if (c.slowdown_temperature)
    out["slowdown_temperature_celsius"] = number(c.slowdown_temperature->value());
  if (c.flat_voltage_end) out["flat_voltage_end_mhz"] = number(c.flat_voltage_end->value());
  out["energy_counter"] = c.energy_counter;
  out["instant_power"] = c.instant_power;
  out["averaged_power"] = c.averaged_power;
  out["activity_counters"] = c.activity_counters;
  out["process_list"] = c.process_list;
  out["start"] = format_utc(header.start);
  if (header.interval > Duration{}) out["interval_seconds"] = seconds(header.interval);
  out["tags"] = header.tags;
  // A driver's or a user's text need not be UTF-8: what is not is replaced, never thrown over.
  return json_text(out);
}

Result<TraceHeader> parse_header(std::string_view text) {
  try {
    const Json object = parse_json(text);
    if (!object.is_object())
      return Error{Errc::bad_data,
                   fmt::format("header {}: allowed is one JSON object on this line", shown(text))};
    return read_header(object);
  } catch (const Json::exception& error) {
    return Error{Errc::bad_data, fmt::format("header: {}", error.what())};
  }
}

}  // namespace derate
