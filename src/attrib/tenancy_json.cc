#include "attrib/tenancy_json.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "attrib/gpu_attribution.h"
#include "base/json.h"

namespace derate {
namespace {

// The fields of each struct are listed once, for both directions. A visitor has
// value(key, field) for what JSON knows, and list(key, fields, each) for lists.

template <class A, class V>
void visit_activity(A& activity, V&& visitor) {
  for (const ActivityShare& share : activity_shares())
    visitor.value(share.name, activity.*share.member);
  visitor.value("pcie_tx_bytes_per_second", activity.pcie_tx);
  visitor.value("pcie_rx_bytes_per_second", activity.pcie_rx);
}

template <class S, class V>
void visit_sample(S& sample, V&& visitor) {
  visitor.value("time_ns", sample.time);
  visitor.value("energy_joules", sample.energy);
  visitor.value("power_usage_watts", sample.power_usage);
  visitor.value("power_instant_watts", sample.power_instant);
  visitor.value("power_average_watts", sample.power_average);
  visitor.value("gpu_utilisation", sample.gpu_utilisation);
  visitor.value("memory_utilisation", sample.memory_utilisation);
  visitor.value("sm_clock_mhz", sample.sm_clock);
  visitor.value("memory_clock_mhz", sample.memory_clock);
  visitor.value("temperature_celsius", sample.temperature);
  visitor.value("throttle_reasons", sample.throttle_reasons);
  visit_activity(sample.activity, visitor);
}

template <class I, class V>
void visit_instance(I& instance, V&& visitor) {
  visitor.value("id", instance.id);
  visitor.value("uuid", instance.uuid);
  visitor.value("profile", instance.profile);
  visitor.value("slices", instance.slices);
  visitor.value("memory_slices", instance.memory_slices);
  visitor.value("multiprocessors", instance.multiprocessors);
  visitor.value("memory_bytes", instance.memory_bytes);
  visit_activity(instance.activity, visitor);
}

template <class P, class V>
void visit_process(P& process, V&& visitor) {
  visitor.value("pid", process.pid);
  visitor.value("name", process.name);
  visitor.value("memory_bytes", process.memory_bytes);
  visitor.value("sm_utilisation", process.sm_utilisation);
  visitor.value("memory_utilisation", process.memory_utilisation);
  visitor.value("gpu_instance", process.gpu_instance);
}

template <class T, class V>
void visit_tenancy(T& tenancy, V&& visitor) {
  visit_sample(tenancy.board, visitor);
  visitor.value("mig", tenancy.mig);
  visitor.value("slices", tenancy.slices);
  visitor.value("memory_slices", tenancy.memory_slices);
  visitor.value("multiprocessors", tenancy.multiprocessors);
  visitor.list("instances", tenancy.instances,
               [](auto& each, auto& inner) { visit_instance(each, inner); });
  visitor.list("processes", tenancy.processes,
               [](auto& each, auto& inner) { visit_process(each, inner); });
}

template <class N, class V>
void visit_name(N& name, V&& visitor) {
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

template <class N, class V>
void visit_names(N& names, V&& visitor) {
  const auto each = [](auto& one, auto& inner) { visit_name(one, inner); };
  visitor.list("instances", names.instances, each);
  visitor.list("processes", names.processes, each);
}

template <class W, class V>
void visit_watched(W& watched, V&& visitor) {
  visitor.value("readings", watched.readings);
  visitor.value("clocks", watched.clocks);
  visitor.value("clock_sum_mhz", watched.clock_mhz);
  visitor.value("capped", watched.capped);
}

template <class I, class F, class V>
void visit_board(I& id, F& facts, V&& visitor) {
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
  template <class T, class Each>
  void list(const char* key, const std::vector<T>& fields, Each each) {
    Json out = Json::array();
    for (const T& one : fields) {
      Writer inner;
      each(one, inner);
      out.push_back(std::move(inner.json));
    }
    if (!out.empty()) json[key] = std::move(out);
  }
};

template <class Visit>
Json written(Visit visit) {
  Writer out;
  visit(out);
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
  template <class T, class Each>
  void list(const char* key, std::vector<T>& fields, Each each) {
    const auto at = json.find(key);
    if (at == json.end()) return;
    if (!at->is_array() && bad.empty()) bad = key;
    if (!bad.empty()) return;
    for (const Json& one : *at) {
      Reader inner{one, one.is_object() ? "" : key};
      if (inner.bad.empty()) each(fields.emplace_back(), inner);
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

// `visit`: puts its fields to a visitor.
template <class T, class Visit>
Result<T> read_as(const Json& json, const char* what, Visit visit) {
  T out;
  Reader reader{json, json.is_object() ? "" : what};
  if (reader.bad.empty()) visit(out, reader);
  if (reader.bad.empty()) return out;
  return Error{Errc::bad_data, fmt::format("'{}' is not what it must be", reader.bad)};
}

}  // namespace

Json tenancy_json(const Tenancy& tenancy) {
  return written([&](Writer& out) { visit_tenancy(tenancy, out); });
}

Result<Tenancy> tenancy_of(const Json& json) {
  return read_as<Tenancy>(json, "tenancy",
                          [](Tenancy& out, Reader& reader) { visit_tenancy(out, reader); });
}

Json names_json(const TenantNames& names) {
  return written([&](Writer& out) { visit_names(names, out); });
}

Result<TenantNames> names_of(const Json& json) {
  return read_as<TenantNames>(json, "names",
                              [](TenantNames& out, Reader& reader) { visit_names(out, reader); });
}

Json watched_json(const ClockSummary& watched) {
  return written([&](Writer& out) { visit_watched(watched, out); });
}

Result<ClockSummary> watched_of(const Json& json) {
  const ClockSummary out = TRY(read_as<ClockSummary>(
      json, "watched", [](ClockSummary& to, Reader& reader) { visit_watched(to, reader); }));
  const auto counts = [&](int part) { return part >= 0 && part <= out.readings; };
  constexpr int kMost = GpuAttribution::kMostWatched;
  if (out.readings <= kMost && counts(out.clocks) && counts(out.capped)) return out;
  return Error{Errc::bad_data, fmt::format("'watched': allowed are 0 to {} readings, and clocks "
                                           "and capped up to as many",
                                           kMost)};
}

Json board_json(const GpuId& id, const BoardFacts& facts) {
  return written([&](Writer& out) { visit_board(id, facts, out); });
}

Result<std::pair<GpuId, BoardFacts>> board_of(const Json& json) {
  using Board = std::pair<GpuId, BoardFacts>;
  return read_as<Board>(
      json, "gpu", [](Board& out, Reader& reader) { visit_board(out.first, out.second, reader); });
}

}  // namespace derate
