#include "attrib/tenancy_json.h"

#include <fmt/format.h>

#include <concepts>
#include <cstdint>
#include <utility>

#include "attrib/gpu_attribution.h"
#include "base/json.h"

namespace derate {
namespace {

template <class T, class What>
concept Of = std::same_as<std::remove_const_t<T>, What>;

using Board = std::pair<GpuId, BoardFacts>;

// The fields of each struct are listed once, for both directions. A visitor has
// value(key, field) for what JSON knows, and list(key, fields) for lists.

void visit(Of<Activity> auto& activity, auto& visitor) {
  for (const ActivityShare& share : activity_shares())
    visitor.value(share.name, activity.*share.member);
  visitor.value("pcie_tx_bytes_per_second", activity.pcie_tx);
  visitor.value("pcie_rx_bytes_per_second", activity.pcie_rx);
}

// The time of the counter, if it was read before the rest of the sample.
void visit_energy_time(Of<Sample> auto& sample, auto& visitor) {
  const Instant taken = read_of(sample, Field::energy).taken;
  std::optional<std::int64_t> read_ns;
  if (sample.energy && taken != sample.time) read_ns = taken.time_since_epoch().count();
  visitor.value("energy_time_ns", read_ns);
  if constexpr (!std::is_const_v<std::remove_reference_t<decltype(sample)>>)
    if (read_ns)
      sample.read_apart.push_back({Field::energy, Instant(Duration(*read_ns)), "replayed"});
}

void visit(Of<Sample> auto& sample, auto& visitor) {
  visitor.value("time_ns", sample.time);
  visitor.value("energy_joules", sample.energy);
  visit_energy_time(sample, visitor);
  visitor.value("power_usage_watts", sample.power_usage);
  visitor.value("power_instant_watts", sample.power_instant);
  visitor.value("power_average_watts", sample.power_average);
  visitor.value("gpu_utilisation", sample.gpu_utilisation);
  visitor.value("memory_utilisation", sample.memory_utilisation);
  visitor.value("sm_clock_mhz", sample.sm_clock);
  visitor.value("memory_clock_mhz", sample.memory_clock);
  visitor.value("temperature_celsius", sample.temperature);
  visitor.value("throttle_reasons", sample.throttle_reasons);
  visit(sample.activity, visitor);
}

void visit(Of<GpuInstance> auto& instance, auto& visitor) {
  visitor.value("id", instance.id);
  visitor.value("uuid", instance.uuid);
  visitor.value("profile", instance.profile);
  visitor.value("slices", instance.slices);
  visitor.value("memory_slices", instance.memory_slices);
  visitor.value("multiprocessors", instance.multiprocessors);
  visitor.value("memory_bytes", instance.memory_bytes);
  visit(instance.activity, visitor);
}

void visit(Of<GpuProcess> auto& process, auto& visitor) {
  visitor.value("pid", process.pid);
  visitor.value("name", process.name);
  visitor.value("memory_bytes", process.memory_bytes);
  visitor.value("sm_utilisation", process.sm_utilisation);
  visitor.value("memory_utilisation", process.memory_utilisation);
  visitor.value("gpu_instance", process.gpu_instance);
}

void visit(Of<Tenancy> auto& tenancy, auto& visitor) {
  visit(tenancy.board, visitor);
  visitor.value("mig", tenancy.mig);
  visitor.value("slices", tenancy.slices);
  visitor.value("memory_slices", tenancy.memory_slices);
  visitor.value("multiprocessors", tenancy.multiprocessors);
  visitor.list("instances", tenancy.instances);
  visitor.list("processes", tenancy.processes);
}

void visit(Of<NamedTenant> auto& name, auto& visitor) {
  visitor.value("key", name.key);
  visitor.value("pid", name.labels.pid);
  visitor.value("process", name.labels.process);
  visitor.value("user", name.labels.user);
  visitor.value("container", name.labels.container);
  visitor.value("namespace", name.labels.name_space);
  visitor.value("pod", name.labels.pod);
  visitor.value("job", name.labels.job);
  visitor.value("instance", name.labels.instance);
}

void visit(Of<TenantNames> auto& names, auto& visitor) {
  visitor.list("instances", names.instances);
  visitor.list("processes", names.processes);
}

void visit(Of<ClockSummary> auto& watched, auto& visitor) {
  visitor.value("readings", watched.readings);
  visitor.value("clocks", watched.clocks);
  visitor.value("clock_sum_mhz", watched.clock_mhz);
  visitor.value("capped", watched.capped);
  visitor.value("powers", watched.powers);
  visitor.value("power_sum_watts", watched.power_w);
}

void visit(Of<Board> auto& board, auto& visitor) {
  auto& [id, facts] = board;
  visitor.value("index", id.index);
  visitor.value("uuid", id.uuid);
  visitor.value("pci_bus_id", id.pci_bus_id);
  visitor.value("name", id.name);
  visitor.value("chip", facts.chip);
  visitor.value("base_watts", facts.base);
  visitor.value("context_watts", facts.context);
  visitor.value("highest_clock_mhz", facts.highest_clock);
  visitor.value("slices", facts.slices);
}

struct Writer {
  Json json = Json::object();

  void value(const char* key, const std::string& text) {
    if (!text.empty()) json[key] = text;
  }
  void value(const char* key, bool flag) {
    if (flag) json[key] = true;
  }
  void value(const char* key, int number) { json[key] = number; }
  void value(const char* key, std::int64_t number) { json[key] = number; }
  void value(const char* key, double number) { json[key] = number; }
  void value(const char* key, Instant time) { json[key] = time.time_since_epoch().count(); }
  template <class T>
  void value(const char* key, const std::optional<T>& field) {
    if (!field) return;
    if constexpr (requires { field->value(); })
      json[key] = field->value();
    else
      json[key] = *field;
  }
  template <class T>
  void list(const char* key, const std::vector<T>& fields) {
    Json out = Json::array();
    for (const T& one : fields) {
      Writer inner;
      visit(one, inner);
      out.push_back(std::move(inner.json));
    }
    if (!out.empty()) json[key] = std::move(out);
  }
};

template <class T>
Json written(const T& what) {
  Writer out;
  visit(what, out);
  return std::move(out.json);
}

struct Reader {
  const Json& json;
  std::string bad;  // the first field that is not what it must be

  template <class T>
  void value(const char* key, T& field) {
    const auto at = json.find(key);
    if (at == json.end() || at->is_null()) return;
    if (!read(*at, field) && bad.empty()) bad = key;
  }
  template <class T>
  void list(const char* key, std::vector<T>& fields) {
    const auto at = json.find(key);
    if (at == json.end()) return;
    if (!at->is_array() && bad.empty()) bad = key;
    if (!bad.empty()) return;
    for (const Json& one : *at) {
      Reader inner{one, one.is_object() ? "" : key};
      if (inner.bad.empty()) visit(fields.emplace_back(), inner);
      if (bad.empty()) bad = inner.bad;
    }
  }

 private:
  template <class T>
  static bool read_number(const Json& from, T& to) {
    // The library would cut a larger number down.
    if (from.is_number_unsigned()) {
      const auto number = from.get<std::uint64_t>();
      return std::in_range<T>(number) && (to = static_cast<T>(number), true);
    }
    if (!from.is_number_integer()) return false;
    const auto number = from.get<std::int64_t>();
    return std::in_range<T>(number) && (to = static_cast<T>(number), true);
  }
  static bool read(const Json& from, std::string& to) {
    return from.is_string() && (to = from.get<std::string>(), true);
  }
  static bool read(const Json& from, bool& to) {
    return from.is_boolean() && (to = from.get<bool>(), true);
  }
  static bool read(const Json& from, int& to) { return read_number(from, to); }
  static bool read(const Json& from, std::int64_t& to) { return read_number(from, to); }
  static bool read(const Json& from, std::uint64_t& to) { return read_number(from, to); }
  static bool read(const Json& from, double& to) {
    return from.is_number() && (to = from.get<double>(), true);
  }
  static bool read(const Json& from, Instant& to) {
    // A century: two of them can be subtracted.
    constexpr std::int64_t kLatest = 3'200'000'000'000'000'000;
    std::int64_t nanoseconds = 0;
    return read(from, nanoseconds) && nanoseconds >= 0 && nanoseconds <= kLatest &&
           (to = Instant(Duration(nanoseconds)), true);
  }
  template <class Tag>
  static bool read(const Json& from, Quantity<Tag>& to) {
    double number = 0;
    return read(from, number) && (to = Quantity<Tag>(number), true);
  }
  template <class T>
  static bool read(const Json& from, std::optional<T>& to) {
    return read(from, to.emplace());
  }
};

template <class T>
Result<T> read_as(const Json& json, const char* what) {
  T out;
  Reader reader{json, json.is_object() ? "" : what};
  if (reader.bad.empty()) visit(out, reader);
  if (reader.bad.empty()) return out;
  return Error{Errc::bad_data, fmt::format("'{}' is not what it must be", reader.bad)};
}

}  // namespace

Json tenancy_json(const Tenancy& tenancy) { return written(tenancy); }
Json names_json(const TenantNames& names) { return written(names); }
Json watched_json(const ClockSummary& watched) { return written(watched); }
Json board_json(const GpuId& id, const BoardFacts& facts) { return written(Board(id, facts)); }

Result<Tenancy> tenancy_of(const Json& json) { return read_as<Tenancy>(json, "tenancy"); }
Result<TenantNames> names_of(const Json& json) { return read_as<TenantNames>(json, "names"); }
Result<Board> board_of(const Json& json) { return read_as<Board>(json, "gpu"); }

Result<ClockSummary> watched_of(const Json& json) {
  const ClockSummary out = TRY(read_as<ClockSummary>(json, "watched"));
  const auto counts = [&](int part) { return part >= 0 && part <= out.readings; };
  constexpr int kMost = GpuAttribution::kMostWatched;
  if (out.readings <= kMost && counts(out.clocks) && counts(out.capped)) return out;
  return Error{Errc::bad_data, fmt::format("'watched': allowed are 0 to {} readings, and clocks "
                                           "and capped up to as many",
                                           kMost)};
}

}  // namespace derate
