#include "device/dcgm/dcgm_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <set>

#include "device/buffer_text.h"

namespace derate {
namespace {

using dcgm::EntityKind;
using dcgm::FieldId;
using dcgm::Return;

// A field and the member that has its value. Policies stand on the primary ones. Rates are bytes a
// second.
struct FieldRow {
  FieldId field = 0;
  std::optional<Fraction> Activity::*share = nullptr;
  std::optional<BytesPerSecond> Activity::*rate = nullptr;
  bool primary = false;
};
constexpr FieldRow kRows[] = {
    {dcgm::field::kGraphics, &Activity::graphics, nullptr, true},
    {dcgm::field::kSm, &Activity::sm, nullptr, true},
    {dcgm::field::kOccupancy, &Activity::occupancy},
    {dcgm::field::kTensor, &Activity::tensor, nullptr, true},
    {dcgm::field::kDram, &Activity::dram, nullptr, true},
    {dcgm::field::kFp64, &Activity::fp64},
    {dcgm::field::kFp32, &Activity::fp32},
    {dcgm::field::kFp16, &Activity::fp16},
    {dcgm::field::kPcieTx, nullptr, &Activity::pcie_tx},
    {dcgm::field::kPcieRx, nullptr, &Activity::pcie_rx},
    {dcgm::field::kInteger, &Activity::integer},
};
// Null: the field is not ours.
const FieldRow* row_of(FieldId field) {
  const auto* const found = std::find_if(std::begin(kRows), std::end(kRows),
                                         [&](const FieldRow& row) { return row.field == field; });
  return found != std::end(kRows) ? found : nullptr;
}

// A counter overshoots 1 a little. A larger value is a blank, or SM activity of a MIG instance
// before DCGM 4 (dcgm-exporter#152).
constexpr double kMostShare = 1.1;
constexpr std::int64_t kMostRate = 1'000'000'000'000;  // as of NVML's (docs/sensors.md)
constexpr std::size_t kEntitiesAtOnce = 32;
constexpr unsigned int kConnectTimeoutMs = 2000;

// An engine that has no value of any field may say so by the call's return.
bool nothing_yet(Return code) {
  return code == Return::no_data || code == Return::stale_data || code == Return::not_watched;
}

// Empty: the value is blank or cannot be.
std::optional<double> possible_value(const FieldRow& row, const dcgm::FieldValue& value) {
  if (row.rate != nullptr) {
    const std::int64_t rate = value.value.integer;
    if (value.type != dcgm::kInteger || rate < 0 || rate > kMostRate) return std::nullopt;
    return static_cast<double>(rate);
  }
  const double share = value.value.real;
  if (value.type != dcgm::kDouble || !(share >= 0 && share <= kMostShare)) return std::nullopt;
  return std::min(1.0, share);
}

std::optional<DcgmValue> sound_value(const dcgm::FieldValue& value) {
  constexpr std::int64_t kLatest = 4'102'444'800'000'000;  // the year 2100
  const FieldRow* row = row_of(value.field);
  if (row == nullptr || value.status != static_cast<int>(Return::ok)) return std::nullopt;
  if (value.microseconds <= 0 || value.microseconds > kLatest) return std::nullopt;
  const auto possible = possible_value(*row, value);
  if (!possible) return std::nullopt;
  return DcgmValue{{value.kind, value.entity},
                   value.field,
                   *possible,
                   WallTime(std::chrono::microseconds(value.microseconds))};
}

// Of "version:4.6.0;arch:x86_64;...".
std::string version_in(const std::string& text) {
  constexpr std::string_view kKey = "version:";
  const std::size_t begin = text.find(kKey);
  if (begin == std::string::npos) return {};
  const std::size_t from = begin + kKey.size();
  return text.substr(from, text.find(';', from) - from);
}

// Those of our fields that the group has.
std::vector<FieldId> ours_of(const dcgm::MetricGroup& group) {
  std::vector<FieldId> out;
  const std::size_t count = std::min<std::size_t>(group.count, std::size(group.fields));
  std::copy_if(group.fields, group.fields + count, std::back_inserter(out),
               [](FieldId field) { return row_of(field) != nullptr; });
  return out;
}

// Primary fields count first.
std::pair<std::ptrdiff_t, std::size_t> worth(const std::vector<FieldId>& fields) {
  const auto primary = std::count_if(fields.begin(), fields.end(),
                                     [](FieldId field) { return row_of(field)->primary; });
  return {primary, fields.size()};
}

}  // namespace

std::vector<FieldId> fields_of_one_pass(std::span<const dcgm::MetricGroup> groups) {
  std::set<FieldId> out;
  std::set<std::uint16_t> majors;
  for (const auto& group : groups) majors.insert(group.major);
  for (const std::uint16_t major : majors) {
    std::vector<FieldId> most;
    for (const auto& group : groups) {
      if (group.major != major) continue;
      auto fields = ours_of(group);
      std::erase_if(fields, [&](FieldId field) { return out.contains(field); });
      if (worth(fields) > worth(most)) most = std::move(fields);
    }
    out.insert(most.begin(), most.end());
  }
  return {out.begin(), out.end()};
}

std::vector<DcgmValue> sound_values(std::span<const dcgm::FieldValue> values) {
  std::vector<DcgmValue> out;
  for (const auto& value : values)
    if (const auto sound = sound_value(value)) out.push_back(*sound);
  return out;
}

std::optional<DcgmActivity> activity_of(std::span<const DcgmValue> values, Duration period) {
  if (values.empty()) return std::nullopt;
  DcgmActivity out;
  for (const auto& each : values) out.time = std::max(out.time, each.time);
  for (const auto& each : values) {
    const FieldRow* row = row_of(each.field);
    if (row == nullptr || out.time - each.time >= period) continue;
    if (row->share != nullptr) out.activity.*(row->share) = Fraction(each.value);
    if (row->rate != nullptr) out.activity.*(row->rate) = BytesPerSecond(each.value);
  }
  return out;
}

Result<std::unique_ptr<DcgmEngine>> DcgmEngine::connect(std::shared_ptr<const DcgmLibrary> library,
                                                        const DcgmAddress& address) {
  const bool unix_socket = address.host.empty();
  dcgm::ConnectParams params{.version = dcgm::version_of<dcgm::ConnectParams>(2),
                             .timeout_ms = kConnectTimeoutMs,
                             .address_is_unix_socket = unix_socket ? 1u : 0u};
  const std::string where = unix_socket ? address.path : to_string(address);
  dcgm::Handle handle = 0;
  const Return code = library->functions().connect(where.c_str(), &params, &handle);
  if (code != Return::ok) return library->error(code, "dcgmConnect_v2").with(to_string(address));
  std::unique_ptr<DcgmEngine> engine(new DcgmEngine(std::move(library), handle));
  dcgm::VersionInfo version{.version = dcgm::version_of<dcgm::VersionInfo>(2)};
  if (engine->library_->functions().engine_version(handle, &version) == Return::ok)
    engine->version_ = version_in(buffer_text(version.text));
  TRY(engine->find_gpus());
  return engine;
}

DcgmEngine::~DcgmEngine() { library_->functions().disconnect(handle_); }

Result<void> DcgmEngine::check(Return code, const char* call) const {
  if (code != Return::ok) return library_->error(code, call);
  return {};
}

// The engine's numbers are not NVML's. A UUID that two GPUs have names none of them.
Result<void> DcgmEngine::find_gpus() {
  unsigned int ids[dcgm::kMostGpus] = {};
  int count = 0;
  TRY(check(library_->functions().all_gpus(handle_, ids, &count), "dcgmGetAllSupportedDevices"));
  const auto found = static_cast<std::size_t>(std::clamp<int>(count, 0, dcgm::kMostGpus));
  if (found == 0) return {};
  std::vector<dcgm::Entity> entities;
  for (std::size_t i = 0; i < found; ++i) entities.push_back({EntityKind::gpu, ids[i]});
  std::vector<dcgm::FieldValue> values(found);
  FieldId uuid = dcgm::field::kUuid;
  TRY(check(library_->functions().latest_values(handle_, entities.data(),
                                                static_cast<unsigned int>(found), &uuid, 1,
                                                dcgm::kLiveData, values.data()),
            "dcgmEntitiesGetLatestValues"));
  std::set<std::string> shared;
  gpus_.clear();
  for (const auto& value : values) {
    if (value.kind != EntityKind::gpu || value.field != dcgm::field::kUuid ||
        value.status != static_cast<int>(Return::ok) || value.type != dcgm::kText)
      continue;
    const std::string text = buffer_text(value.value.text);
    if (!gpus_.emplace(text, value.entity).second) shared.insert(text);
  }
  for (const auto& text : shared) gpus_.erase(text);
  return {};
}

Result<std::vector<FieldId>> DcgmEngine::find_fields(unsigned int gpu) {
  dcgm::MetricGroups groups{};
  groups.version = dcgm::version_of<dcgm::MetricGroups>(3);
  groups.gpu = gpu;
  TRY(check(library_->functions().metric_groups(handle_, &groups),
            "dcgmProfGetSupportedMetricGroups"));
  const std::size_t count = std::min<std::size_t>(groups.count, std::size(groups.groups));
  auto fields = fields_of_one_pass({groups.groups, count});
  if (fields.empty())
    return Error{Errc::not_supported, "the host engine measures no activity of this GPU"};
  return fields;
}

std::vector<DcgmEngine::Part> DcgmEngine::find_parts(const std::string& uuid, unsigned int gpu) {
  std::vector<Part> out = {{{EntityKind::gpu, gpu}, std::nullopt}};
  const auto tree = std::make_unique<dcgm::Hierarchy>();
  tree->version = dcgm::version_of<dcgm::Hierarchy>(2);
  if (library_->functions().hierarchy(handle_, tree.get()) != Return::ok) return out;
  const std::size_t count = std::min<std::size_t>(tree->count, std::size(tree->entries));
  for (const auto& entry : std::span(tree->entries, count)) {
    if (entry.entity.kind != EntityKind::gpu_instance || entry.parent.kind != EntityKind::gpu ||
        entry.parent.id != gpu || buffer_text(entry.gpu_uuid) != uuid)
      continue;
    out.push_back({entry.entity, static_cast<int>(entry.gpu_instance)});
  }
  return out;
}

// All clients of an engine share the names of groups. A process that had this number before may
// have left its names there.
template <class Create>
Return DcgmEngine::create_named(Create create) {
  constexpr int kTries = 8;
  Return code = Return::duplicate_key;
  for (int i = 0; i < kTries && code == Return::duplicate_key; ++i)
    code = create(fmt::format("derate-{}-{}", ::getpid(), ++names_).c_str());
  return code;
}

Result<dcgm::FieldGroup> DcgmEngine::group_of(const std::vector<FieldId>& fields) {
  if (const auto known = field_groups_.find(fields); known != field_groups_.end())
    return known->second;
  dcgm::FieldGroup group{};
  const Return code = create_named([&](const char* name) {
    return library_->functions().fields_create(handle_, static_cast<int>(fields.size()),
                                               fields.data(), name, &group);
  });
  TRY(check(code, "dcgmFieldGroupCreate"));
  field_groups_[fields] = group;
  return group;
}

Result<dcgm::Group> DcgmEngine::group_of(const std::vector<Part>& parts) {
  dcgm::Group group{};
  const Return created = create_named([&](const char* name) {
    return library_->functions().group_create(handle_, dcgm::kEmptyGroup, name, &group);
  });
  TRY(check(created, "dcgmGroupCreate"));
  for (const Part& part : parts) {
    const Return code =
        library_->functions().group_add(handle_, group, part.entity.kind, part.entity.id);
    if (code == Return::ok) continue;
    library_->functions().group_destroy(handle_, group);
    return library_->error(code, "dcgmGroupAddEntity");
  }
  return group;
}

// GPUs come back, and an engine may name one later.
Result<unsigned int> DcgmEngine::find_gpu(const std::string& uuid) {
  if (!gpus_.contains(uuid)) TRY(find_gpus());
  const auto gpu = gpus_.find(uuid);
  if (gpu == gpus_.end())
    return Error{Errc::not_found, uuid + ": the host engine does not have this GPU"};
  return gpu->second;
}

Result<std::optional<WallTime>> DcgmEngine::measured_at(const std::string& uuid) {
  const unsigned int number = TRY(find_gpu(uuid));
  dcgm::Entity gpu{EntityKind::gpu, number};
  std::array<FieldId, std::size(kRows)> fields;
  std::transform(std::begin(kRows), std::end(kRows), fields.begin(),
                 [](const FieldRow& row) { return row.field; });
  std::vector<dcgm::FieldValue> values(fields.size());
  const Return code = library_->functions().latest_values(
      handle_, &gpu, 1, fields.data(), static_cast<unsigned int>(fields.size()), 0, values.data());
  if (nothing_yet(code)) return std::optional<WallTime>{};
  TRY(check(code, "dcgmEntitiesGetLatestValues"));
  std::optional<WallTime> newest;
  for (const DcgmValue& value : sound_values(values))
    newest = std::max(newest.value_or(value.time), value.time);
  return newest;
}

Result<void> DcgmEngine::watch(const std::string& uuid, Duration period) {
  const unsigned int gpu = TRY(find_gpu(uuid));
  Watched fresh{.parts = find_parts(uuid, gpu), .fields = {}, .period = period};
  const auto before = watched_.find(uuid);
  if (before != watched_.end() && before->second.parts == fresh.parts &&
      before->second.period == period)
    return {};
  unwatch(uuid);
  fresh.fields = TRY(find_fields(gpu));
  fresh.field_group = TRY(group_of(fresh.fields));
  fresh.group = TRY(group_of(fresh.parts));
  const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(period).count();
  constexpr double kKeepSeconds = 5;
  constexpr int kKeepAll = 0;
  const Return code = library_->functions().watch(handle_, fresh.group, fresh.field_group,
                                                  microseconds, kKeepSeconds, kKeepAll);
  if (code != Return::ok) {
    library_->functions().group_destroy(handle_, fresh.group);
    return library_->error(code, "dcgmWatchFields");
  }
  watched_[uuid] = std::move(fresh);
  return {};
}

void DcgmEngine::unwatch(const std::string& uuid) {
  const auto found = watched_.find(uuid);
  if (found == watched_.end()) return;
  library_->functions().unwatch(handle_, found->second.group, found->second.field_group);
  library_->functions().group_destroy(handle_, found->second.group);
  watched_.erase(found);
}

Result<std::vector<DcgmReading>> DcgmEngine::read() {
  std::vector<dcgm::Entity> entities;
  std::set<FieldId> union_of_fields;
  for (const auto& [uuid, gpu] : watched_) {
    for (const Part& part : gpu.parts) entities.push_back(part.entity);
    union_of_fields.insert(gpu.fields.begin(), gpu.fields.end());
  }
  std::vector<FieldId> fields(union_of_fields.begin(), union_of_fields.end());
  values_.assign(entities.size() * fields.size(), dcgm::FieldValue{});
  for (std::size_t at = 0; at < entities.size(); at += kEntitiesAtOnce) {
    const std::size_t count = std::min(kEntitiesAtOnce, entities.size() - at);
    const Return code = library_->functions().latest_values(
        handle_, entities.data() + at, static_cast<unsigned int>(count), fields.data(),
        static_cast<unsigned int>(fields.size()), 0, values_.data() + at * fields.size());
    if (code == Return::connection_not_valid)
      return library_->error(code, "dcgmEntitiesGetLatestValues");
  }
  // Each value names its entity: the order of the answer does not matter.
  std::map<dcgm::Entity, std::vector<DcgmValue>> sound;
  for (const DcgmValue& value : sound_values(values_)) sound[value.entity].push_back(value);
  std::vector<DcgmReading> out;
  for (const auto& [uuid, gpu] : watched_)
    for (const Part& part : gpu.parts)
      if (const auto found = activity_of(sound[part.entity], gpu.period))
        out.push_back({uuid, part.gpu_instance, found->activity, found->time});
  return out;
}

}  // namespace derate
