// Any bytes as the answers of a DCGM host engine, through the real client code: news that are sound
// and young, or none, never a crash.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"
#include "device/dcgm/dcgm_listeners.h"
#include "device/dcgm/dcgm_watcher.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
using dcgm::Return;

// The bytes that are left. DCGM's functions carry no object.
std::span<const std::uint8_t>& rest() {
  static std::span<const std::uint8_t> bytes;
  return bytes;
}

template <class T>
void draw(T& out) {
  const std::size_t size = std::min(sizeof out, rest().size());
  std::memcpy(static_cast<void*>(&out), rest().data(), size);
  rest() = rest().subspan(size);
}

// Mostly ok: an engine that refuses everything shows little.
Return code() {
  std::uint8_t byte = 0;
  draw(byte);
  return byte < 224 ? Return::ok : static_cast<Return>(-(byte - 223));
}

// More would show little more of the code, and take as much longer.
constexpr int kMostLooks = 12;

constexpr const char* kUuids[] = {"GPU-a", "GPU-b"};
constexpr std::size_t kUuidSize = 6;  // with its end

// Some of the values are what an engine gives, with one byte or none that is not.
void draw_value(const dcgm::Entity& entity, dcgm::FieldId field, std::int64_t now_us,
                dcgm::FieldValue& out) {
  std::uint8_t kind = 0, at = 0, byte = 0;
  draw(kind);
  out.kind = entity.kind;
  out.entity = entity.id;
  out.field = field;
  out.microseconds = now_us;
  if (field == dcgm::field::kUuid) {
    out.type = dcgm::kText;
    std::memcpy(out.value.text, kUuids[kind % std::size(kUuids)], kUuidSize);
  } else {
    out.type = field == 1009 || field == 1010 ? dcgm::kInteger : dcgm::kDouble;
    if (out.type == dcgm::kDouble)
      out.value.real = kind / 255.0;
    else
      out.value.integer = kind;
  }
  if (kind % 4 == 0) return;
  draw(at);
  draw(byte);
  constexpr std::size_t kHead = 48;  // all but most of a text
  reinterpret_cast<std::uint8_t*>(&out)[at % kHead] = byte;
}

std::int64_t& engine_time() {
  static std::int64_t microseconds = 0;
  return microseconds;
}

void add_groups(DcgmFunctions& out) {
  out.group_create = [](dcgm::Handle, int, const char*, dcgm::Group* group) {
    draw(*group);
    return code();
  };
  out.group_add = [](dcgm::Handle, dcgm::Group, dcgm::EntityKind, unsigned int) { return code(); };
  out.group_destroy = [](dcgm::Handle, dcgm::Group) { return code(); };
  out.fields_create = [](dcgm::Handle, int, const dcgm::FieldId*, const char*,
                         dcgm::FieldGroup* group) {
    draw(*group);
    return code();
  };
  out.watch = [](dcgm::Handle, dcgm::Group, dcgm::FieldGroup, long long, double, int) {
    return code();
  };
  out.unwatch = [](dcgm::Handle, dcgm::Group, dcgm::FieldGroup) { return code(); };
}

DcgmFunctions functions() {
  DcgmFunctions out;
  out.init = [] { return Return::ok; };
  out.shutdown = [] { return Return::ok; };
  out.error_string = [](Return) { return "fuzzed"; };
  out.connect = [](const char*, dcgm::ConnectParams*, dcgm::Handle* handle) {
    *handle = 1;
    return code();
  };
  out.disconnect = [](dcgm::Handle) { return Return::ok; };
  out.engine_version = [](dcgm::Handle, dcgm::VersionInfo* version) {
    draw(version->text[0]);
    return code();
  };
  out.all_gpus = [](dcgm::Handle, unsigned int* ids, int* count) {
    std::uint8_t some = 0;
    draw(some);
    *count = some < 250 ? some % 3 : static_cast<int>(some) * 1000;
    for (unsigned int i = 0; i < dcgm::kMostGpus; ++i) ids[i] = i;
    return code();
  };
  out.metric_groups = [](dcgm::Handle, dcgm::MetricGroups* groups) {
    std::uint8_t count = 0;
    draw(count);
    groups->count = count < 240 ? count % 4 : ~0u;
    for (auto& group : groups->groups) {
      std::uint8_t fields = 0;
      draw(fields);
      group.major = fields % 3;
      group.count = fields < 240 ? fields % 12 : ~0u;
      for (std::size_t i = 0; i < 12; ++i)
        group.fields[i] = static_cast<dcgm::FieldId>(1001 + (i + fields) % 16);
    }
    return code();
  };
  out.hierarchy = [](dcgm::Handle, dcgm::Hierarchy* tree) {
    std::uint8_t count = 0;
    draw(count);
    tree->count = count < 240 ? count % 5 : ~0u;
    for (std::size_t i = 0; i < 5; ++i) {
      dcgm::HierarchyEntry& entry = tree->entries[i];
      std::uint8_t byte = 0;
      draw(byte);
      entry.entity = {byte % 2 == 0 ? dcgm::EntityKind::gpu_instance : dcgm::EntityKind::gpu, byte};
      entry.parent = {dcgm::EntityKind::gpu, byte % 3u};
      std::memcpy(entry.gpu_uuid, kUuids[byte % std::size(kUuids)], kUuidSize);
      draw(entry.gpu_instance);
    }
    return code();
  };
  add_groups(out);
  out.latest_values = [](dcgm::Handle, dcgm::Entity* entities, unsigned int count,
                         dcgm::FieldId* fields, unsigned int field_count, unsigned int,
                         dcgm::FieldValue* values) {
    for (unsigned int i = 0; i < count; ++i)
      for (unsigned int k = 0; k < field_count; ++k)
        draw_value(entities[i], fields[k], engine_time(), values[i * field_count + k]);
    return code();
  };
  return out;
}

Result<DcgmWatcher::Connected> connect_fuzzed() {
  const DcgmAddress address = usual_dcgm_addresses().front();
  auto engine = TRY(DcgmEngine::connect(TRY(DcgmLibrary::create(functions())), address));
  return DcgmWatcher::Connected{std::move(engine), address};
}

void check_news(const DcgmNews& news, Instant now) {
  CHECK(news.taken <= now && now - news.taken <= 2 * news.period);
  for (const ActivityShare& share : activity_shares())
    if (const auto& value = news.activity.*share.member)
      CHECK(*value >= Fraction(0) && *value <= Fraction(1));
  for (const auto& rate : {news.activity.pcie_tx, news.activity.pcie_rx})
    CHECK(!rate || (rate->value() >= 0 && rate->value() <= 1e12));
}

}  // namespace
}  // namespace derate

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  rest() = {data, size};
  std::uint8_t use = 0;
  draw(use);
  FakeClock clock;
  clock.step_wall(1h);
  DcgmWatcher watcher(use % 2 == 0 ? DcgmUse::all : DcgmUse::shared, connect_fuzzed, clock);
  DcgmNeeds needs;
  for (const char* uuid : kUuids) needs[uuid] = {kDcgmQuickPeriod, Instant::max()};
  for (int look = 0; look < kMostLooks && !rest().empty(); ++look) {
    const auto wall = clock.wall_now().time_since_epoch();
    engine_time() = std::chrono::duration_cast<std::chrono::microseconds>(wall).count();
    const Instant next = watcher.look(needs);
    for (const auto& [part, news] : watcher.state().news) check_news(news, clock.now());
    CHECK(next > clock.now());
    clock.sleep_until(std::min(next, clock.now() + 3s));
  }
  return 0;
}
