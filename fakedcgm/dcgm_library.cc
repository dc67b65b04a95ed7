// The stand-in of libdcgm: DCGM's C functions over a connection to our host engine.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "device/dcgm/dcgm_abi.h"
#include "fakedcgm/wire.h"

#define DCGM_CALL extern "C" __attribute__((visibility("default")))

namespace derate::fakedcgm {
namespace {

using dcgm::Entity;
using dcgm::FieldId;
using dcgm::Return;

class Connection {
 public:
  explicit Connection(UniqueFd fd) : fd_(std::move(fd)) {}

  // Null: the engine is gone.
  Json ask(const Json& request) {
    const std::lock_guard lock(mutex_);
    if (!send_packet(fd_.get(), request)) return nullptr;
    while (true) {
      if (auto packet = inbox_.take()) return *std::move(packet);
      if (!inbox_.read_from(fd_.get())) return nullptr;
    }
  }

 private:
  UniqueFd fd_;
  std::mutex mutex_;  // one request at a time
  Inbox inbox_;
};

struct Session {
  std::mutex mutex;
  std::map<dcgm::Handle, std::shared_ptr<Connection>> connections;
  dcgm::Handle last = 0;
};
Session& session() {
  static Session instance;
  return instance;
}

std::shared_ptr<Connection> connection_of(dcgm::Handle handle) {
  const std::lock_guard lock(session().mutex);
  const auto found = session().connections.find(handle);
  return found != session().connections.end() ? found->second : nullptr;
}

// Asks the engine, and has `take` read an answer that is good. Nothing that is thrown leaves the
// library: a C program cannot catch it.
template <class Take>
Return call(dcgm::Handle handle, const Json& request, Take take) {
  try {
    const auto connection = connection_of(handle);
    if (connection == nullptr) return Return::connection_not_valid;
    const Json answer = connection->ask(request);
    const auto code = number_at(answer, "code");
    if (!code) return Return::connection_not_valid;
    if (*code == 0) take(answer);
    return static_cast<Return>(static_cast<int>(*code));
  } catch (...) {
    return Return::bad_param;
  }
}
Return call(dcgm::Handle handle, const Json& request) {
  return call(handle, request, [](const Json&) {});
}

template <std::size_t Size>
void put(char (&out)[Size], const std::string& text) {
  const std::size_t length = std::min(text.size(), Size - 1);
  text.copy(out, length);
  out[length] = '\0';
}

Json pairs(std::span<const Entity> entities) {
  Json out = Json::array();
  for (const Entity& each : entities)
    out.push_back(Json::array({static_cast<int>(each.kind), each.id}));
  return out;
}

void take_value(const Json& from, dcgm::FieldValue& out) {
  out = {};
  out.version = dcgm::version_of<dcgm::FieldValue>(2);
  out.kind = static_cast<dcgm::EntityKind>(from["kind"].get<int>());
  out.entity = from["id"].get<unsigned int>();
  out.field = from["field"].get<FieldId>();
  out.status = from.value("status", 0);
  out.microseconds = from.value("us", std::int64_t{0});
  out.type = from.contains("text") ? dcgm::kText : dcgm::kDouble;
  if (out.type == dcgm::kText)
    put(out.value.text, from["text"].get<std::string>());
  else
    out.value.real = from.value("real", dcgm::kBlank);
}

Return group_made(dcgm::Handle handle, const Json& request, std::uintptr_t* out) {
  return call(handle, request,
              [&](const Json& answer) { *out = answer["group"].get<std::uintptr_t>(); });
}

}  // namespace

DCGM_CALL Return dcgmInit() { return Return::ok; }

DCGM_CALL Return dcgmShutdown() {
  const std::lock_guard lock(session().mutex);
  session().connections.clear();
  return Return::ok;
}

DCGM_CALL const char* errorString(Return code) {
  switch (code) {
    case Return::ok:
      return "Success";
    case Return::connection_not_valid:
      return "The connection to the host engine is not valid any longer";
    case Return::profiling_library_error:
      return "Error returned from the profiling library";
    case Return::module_not_loaded:
      return "This request is serviced by a module of DCGM that is not currently loaded";
    default:
      return "An error of the stand-in";
  }
}

DCGM_CALL Return dcgmConnect_v2(const char* address, dcgm::ConnectParams* params,
                                dcgm::Handle* out) {
  if (address == nullptr || params == nullptr || out == nullptr) return Return::bad_param;
  if (params->version != dcgm::version_of<dcgm::ConnectParams>(2)) return Return::version_mismatch;
  auto fd = connect_to(address);
  if (!fd.ok()) return Return::connection_not_valid;
  const std::lock_guard lock(session().mutex);
  *out = ++session().last;
  session().connections[*out] = std::make_shared<Connection>(*std::move(fd));
  return Return::ok;
}

DCGM_CALL Return dcgmDisconnect(dcgm::Handle handle) {
  const std::lock_guard lock(session().mutex);
  return session().connections.erase(handle) > 0 ? Return::ok : Return::bad_param;
}

DCGM_CALL Return dcgmHostengineVersionInfo(dcgm::Handle handle, dcgm::VersionInfo* out) {
  if (out->version != dcgm::version_of<dcgm::VersionInfo>(2)) return Return::version_mismatch;
  return call(handle, {{"op", "version"}},
              [&](const Json& answer) { put(out->text, text_at(answer, "text")); });
}

DCGM_CALL Return dcgmGetAllSupportedDevices(dcgm::Handle handle, unsigned int* ids, int* count) {
  return call(handle, {{"op", "gpus"}}, [&](const Json& answer) {
    *count = 0;
    for (const Json& id : answer["ids"])
      if (static_cast<std::size_t>(*count) < dcgm::kMostGpus)
        ids[(*count)++] = id.get<unsigned int>();
  });
}

DCGM_CALL Return dcgmProfGetSupportedMetricGroups(dcgm::Handle handle, dcgm::MetricGroups* out) {
  if (out->version != dcgm::version_of<dcgm::MetricGroups>(3)) return Return::version_mismatch;
  return call(handle, {{"op", "metric_groups"}, {"gpu", out->gpu}}, [&](const Json& answer) {
    out->count = 0;
    for (const Json& each : answer["groups"]) {
      dcgm::MetricGroup& group = out->groups[out->count++];
      group = {};
      group.major = each["major"].get<std::uint16_t>();
      group.minor = each["minor"].get<std::uint16_t>();
      for (const Json& field : each["fields"]) group.fields[group.count++] = field.get<FieldId>();
    }
  });
}

DCGM_CALL Return dcgmGetGpuInstanceHierarchy(dcgm::Handle handle, dcgm::Hierarchy* out) {
  if (out->version != dcgm::version_of<dcgm::Hierarchy>(2)) return Return::version_mismatch;
  return call(handle, {{"op", "hierarchy"}}, [&](const Json& answer) {
    out->count = 0;
    for (const Json& each : answer["entries"]) {
      dcgm::HierarchyEntry& entry = out->entries[out->count++];
      entry = {};
      entry.entity = {dcgm::EntityKind::gpu_instance, each["id"].get<unsigned int>()};
      entry.parent = {dcgm::EntityKind::gpu, each["gpu"].get<unsigned int>()};
      put(entry.gpu_uuid, each["uuid"].get<std::string>());
      entry.nvml_index = each["index"].get<unsigned int>();
      entry.gpu_instance = each["instance"].get<unsigned int>();
      entry.compute_instance = ~0u;
    }
  });
}

DCGM_CALL Return dcgmGroupCreate(dcgm::Handle handle, int, const char* name, dcgm::Group* out) {
  return group_made(handle, {{"op", "group_create"}, {"name", name}}, out);
}

DCGM_CALL Return dcgmGroupAddEntity(dcgm::Handle handle, dcgm::Group group, dcgm::EntityKind kind,
                                    unsigned int id) {
  const Entity entity{kind, id};
  return call(handle, {{"op", "group_add"}, {"group", group}, {"entities", pairs({&entity, 1})}});
}

DCGM_CALL Return dcgmGroupAddDevice(dcgm::Handle handle, dcgm::Group group, unsigned int id) {
  return dcgmGroupAddEntity(handle, group, dcgm::EntityKind::gpu, id);
}

DCGM_CALL Return dcgmGroupDestroy(dcgm::Handle handle, dcgm::Group group) {
  return call(handle, {{"op", "group_destroy"}, {"group", group}});
}

DCGM_CALL Return dcgmFieldGroupCreate(dcgm::Handle handle, int count, const FieldId* fields,
                                      const char* name, dcgm::FieldGroup* out) {
  const std::vector<FieldId> all(fields, fields + std::max(0, count));
  return group_made(handle, {{"op", "fields_create"}, {"name", name}, {"fields", all}}, out);
}

DCGM_CALL Return dcgmWatchFields(dcgm::Handle handle, dcgm::Group group, dcgm::FieldGroup fields,
                                 long long microseconds, double, int) {
  return call(
      handle,
      {{"op", "watch"}, {"group", group}, {"fields", fields}, {"microseconds", microseconds}});
}

DCGM_CALL Return dcgmUnwatchFields(dcgm::Handle handle, dcgm::Group group, dcgm::FieldGroup) {
  return call(handle, {{"op", "unwatch"}, {"group", group}});
}

DCGM_CALL Return dcgmEntitiesGetLatestValues(dcgm::Handle handle, Entity* entities,
                                             unsigned int count, FieldId* fields,
                                             unsigned int field_count, unsigned int,
                                             dcgm::FieldValue* values) {
  const Json request = {{"op", "latest"},
                        {"entities", pairs({entities, count})},
                        {"fields", std::vector<FieldId>(fields, fields + field_count)}};
  const std::size_t room = std::size_t{count} * field_count;
  return call(handle, request, [&](const Json& answer) {
    std::size_t at = 0;
    for (const Json& each : answer["values"])
      if (at < room) take_value(each, values[at++]);
  });
}

}  // namespace derate::fakedcgm
