// A DCGM host engine in the test's own process, behind DCGM's functions, with faults on demand.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "device/dcgm/dcgm_library.h"

namespace derate {

struct TestDcgmGpu {
  unsigned int id = 0;
  std::string uuid;
  double busy = 0.5;                         // about; each new value differs a little
  std::vector<unsigned int> instances = {};  // NVML's numbers
  std::vector<dcgm::MetricGroup> groups = {};
  bool lost = false;  // its watches fail
};

// One at a time in a process: DCGM's functions carry no object. Its own lock, so that a test may
// change it while a thread reads.
class TestDcgm {
 public:
  explicit TestDcgm(const Clock& clock) : clock_(clock) { current() = this; }
  TestDcgm(const TestDcgm&) = delete;
  TestDcgm& operator=(const TestDcgm&) = delete;
  ~TestDcgm() { current() = nullptr; }

  struct Faults {
    bool refused = false;  // nothing listens
    bool taken = false;    // another process has the profiling hardware
    bool paused = false;   // blanks
    bool zeros = false, frozen = false, shuffled = false, unterminated = false;
    bool no_module = false;
    bool keeps_values = false;  // also of GPUs that nobody has measured any more
    bool stopped = false;       // it stores no new values
    int names_taken = 0;        // the next names that another client has
    int watches_failed = 0;     // the next watches that fail for no reason of the GPU's
    Duration late{};            // how old each new value is
    Duration slowest{};         // it measures no more often than each
  };

  void change(const std::function<void(TestDcgm&)>& what) {
    const std::lock_guard lock(mutex_);
    what(*this);
  }
  // All connections end, with all that was measured for them.
  void restart() {
    const std::lock_guard lock(mutex_);
    ++life_;
    watched.clear();
  }
  void hang() {
    const std::lock_guard lock(mutex_);
    hung_ = true;
  }
  void go_on() {
    const std::lock_guard lock(mutex_);
    hung_ = false;
    changed_.notify_all();
  }

  std::vector<TestDcgmGpu> gpus;
  Faults faults;
  // By the number of the GPU, the period for this process and for another client.
  std::map<unsigned int, Duration> watched, others;
  int calls = 0, watches = 0, connections = 0, open_groups = 0;

  DcgmFunctions functions() {
    return {.init = [] { return dcgm::Return::ok; },
            .shutdown = [] { return dcgm::Return::ok; },
            .error_string = [](dcgm::Return) { return "test"; },
            .connect = connect,
            .disconnect =
                [](dcgm::Handle) {
                  return enter(0, [](TestDcgm& it) {
                    --it.connections;
                    return dcgm::Return::ok;
                  });
                },
            .engine_version = engine_version,
            .all_gpus = all_gpus,
            .metric_groups = metric_groups,
            .hierarchy = hierarchy,
            .group_create = group_create,
            .group_add = group_add,
            .group_destroy = group_destroy,
            .fields_create = fields_create,
            .watch = watch,
            .unwatch = unwatch,
            .latest_values = latest_values};
  }

  // Groups as an A100 has them, by EAR's table: all of ours in one.
  static std::vector<dcgm::MetricGroup> one_group() {
    return {group(1, 0, {1001, 1002, 1003, 1004, 1005, 1006}), group(1, 1, {1007}),
            group(1, 2, {1008})};
  }
  static dcgm::MetricGroup group(std::uint16_t major, std::uint16_t minor,
                                 std::vector<dcgm::FieldId> fields) {
    dcgm::MetricGroup out{};
    out.major = major;
    out.minor = minor;
    out.count = static_cast<unsigned int>(fields.size());
    std::copy(fields.begin(), fields.end(), out.fields);
    return out;
  }

 private:
  using Return = dcgm::Return;
  static TestDcgm*& current() {
    static TestDcgm* instance = nullptr;
    return instance;
  }
  // Every call: waits while the engine hangs; a connection of an earlier life is not valid.
  // A handle of 0 is no connection.
  template <class F>
  static Return enter(dcgm::Handle handle, F&& call) {
    TestDcgm& it = *current();
    std::unique_lock lock(it.mutex_);
    ++it.calls;
    it.changed_.wait(lock, [&] { return !it.hung_; });
    if (handle != 0 && handle != it.life_) return Return::connection_not_valid;
    return call(it);
  }

  // Without a terminating zero where the text fills the buffer.
  template <std::size_t Size>
  static void put(char (&buffer)[Size], const std::string& text) {
    std::fill(std::copy_n(text.begin(), std::min(text.size(), Size), buffer), buffer + Size, '\0');
  }

  static Return connect(const char*, dcgm::ConnectParams* params, dcgm::Handle* handle) {
    return enter(0, [&](TestDcgm& it) {
      if (params->version != 0x02000010) return Return::version_mismatch;
      if (it.faults.refused) return Return::connection_not_valid;
      ++it.connections;
      *handle = it.life_;
      return Return::ok;
    });
  }
  static Return engine_version(dcgm::Handle handle, dcgm::VersionInfo* out) {
    return enter(handle, [&](TestDcgm& it) {
      std::memset(out->text, 'x', it.faults.unterminated ? sizeof out->text : 0);
      if (!it.faults.unterminated) put(out->text, "version:4.6.0;arch:x86_64;");
      return Return::ok;
    });
  }
  static Return all_gpus(dcgm::Handle handle, unsigned int* ids, int* count) {
    return enter(handle, [&](TestDcgm& it) {
      *count = 0;
      for (const auto& gpu : it.gpus) ids[(*count)++] = gpu.id;
      return Return::ok;
    });
  }
  static Return metric_groups(dcgm::Handle handle, dcgm::MetricGroups* out) {
    return enter(handle, [&](TestDcgm& it) {
      if (it.faults.no_module) return Return::module_not_loaded;
      const TestDcgmGpu* gpu = it.find(out->gpu);
      if (gpu == nullptr || out->version != 0x03000560) return Return::bad_param;
      out->count = static_cast<unsigned int>(gpu->groups.size());
      std::copy(gpu->groups.begin(), gpu->groups.end(), out->groups);
      return Return::ok;
    });
  }
  static Return hierarchy(dcgm::Handle handle, dcgm::Hierarchy* out) {
    return enter(handle, [&](TestDcgm& it) {
      out->count = 0;
      for (const auto& gpu : it.gpus)
        for (const unsigned int instance : gpu.instances) {
          auto& entry = out->entries[out->count++];
          entry.entity = {dcgm::EntityKind::gpu_instance, gpu.id * 10 + instance};
          entry.parent = {dcgm::EntityKind::gpu, gpu.id};
          put(entry.gpu_uuid, gpu.uuid);
          entry.gpu_instance = instance;
        }
      return Return::ok;
    });
  }
  static Return group_create(dcgm::Handle handle, int, const char* name, dcgm::Group* out) {
    return enter(handle, [&](TestDcgm& it) {
      if (!it.takes(name)) return Return::duplicate_key;
      ++it.open_groups;
      *out = ++it.next_group_;
      return Return::ok;
    });
  }
  static Return group_add(dcgm::Handle handle, dcgm::Group group, dcgm::EntityKind kind,
                          unsigned int id) {
    return enter(handle, [&](TestDcgm& it) {
      if (kind == dcgm::EntityKind::gpu) it.groups_[group] = id;
      return Return::ok;
    });
  }
  static Return group_destroy(dcgm::Handle handle, dcgm::Group) {
    return enter(handle, [&](TestDcgm& it) {
      --it.open_groups;
      return Return::ok;
    });
  }
  static Return fields_create(dcgm::Handle handle, int, const dcgm::FieldId*, const char* name,
                              dcgm::FieldGroup* out) {
    return enter(handle, [&](TestDcgm& it) {
      if (!it.takes(name)) return Return::duplicate_key;
      *out = ++it.next_group_;
      return Return::ok;
    });
  }
  static Return watch(dcgm::Handle handle, dcgm::Group group, dcgm::FieldGroup,
                      long long microseconds, double, int) {
    return enter(handle, [&](TestDcgm& it) {
      ++it.watches;
      if (it.faults.taken) return Return::profiling_library_error;
      if (it.find(it.groups_.at(group))->lost) return Return::gpu_is_lost;
      if (it.faults.watches_failed > 0 && it.faults.watches_failed-- > 0) return Return::timeout;
      it.watched[it.groups_.at(group)] = std::chrono::microseconds(microseconds);
      return Return::ok;
    });
  }
  static Return unwatch(dcgm::Handle handle, dcgm::Group group, dcgm::FieldGroup) {
    return enter(handle, [&](TestDcgm& it) {
      it.watched.erase(it.groups_.at(group));
      return Return::ok;
    });
  }
  static Return latest_values(dcgm::Handle handle, dcgm::Entity* entities, unsigned int count,
                              dcgm::FieldId* fields, unsigned int field_count, unsigned int,
                              dcgm::FieldValue* values) {
    return enter(handle, [&](TestDcgm& it) {
      for (unsigned int i = 0; i < count; ++i)
        for (unsigned int k = 0; k < field_count; ++k)
          it.fill(entities[i], fields[k], values[i * field_count + k]);
      if (it.faults.shuffled) std::reverse(values, values + count * field_count);
      return Return::ok;
    });
  }

  bool takes(const char* name) {
    if (faults.names_taken > 0 && faults.names_taken-- > 0) return false;
    return names_.insert(name).second;
  }
  const TestDcgmGpu* find(unsigned int id) const {
    for (const auto& gpu : gpus)
      if (gpu.id == id) return &gpu;
    return nullptr;
  }

  // 0: nobody has the GPU measured.
  Duration period_of(unsigned int gpu) const {
    const auto ours = watched.find(gpu), other = others.find(gpu);
    if (ours == watched.end()) return other == others.end() ? Duration{} : other->second;
    return other == others.end() ? ours->second : std::min(ours->second, other->second);
  }
  void fill(const dcgm::Entity& entity, dcgm::FieldId field, dcgm::FieldValue& out) {
    const bool whole = entity.kind == dcgm::EntityKind::gpu;
    const unsigned int id = whole ? entity.id : entity.id / 10;
    const TestDcgmGpu* gpu = find(id);
    out.kind = entity.kind;
    out.entity = entity.id;
    out.field = field;
    if (field == dcgm::field::kUuid) {
      out.type = dcgm::kText;
      put(out.value.text, gpu->uuid);
      return;
    }
    out.type = dcgm::kDouble;
    Duration period = period_of(id);
    if (period != Duration{}) period = std::max(period, faults.slowest);
    if (period == Duration{}) {
      const auto kept = kept_.find({entity, field});
      if (kept != kept_.end()) out = kept->second;
      if (kept == kept_.end()) out.status = static_cast<int>(Return::not_watched);
      return;
    }
    if (const auto last = last_.find({entity, field}); faults.stopped && last != last_.end()) {
      out = last->second;
      return;
    }
    const Duration since = clock_.wall_now().time_since_epoch();
    const auto number = since / period;
    const auto time = number * period - faults.late;
    out.microseconds = std::chrono::duration_cast<std::chrono::microseconds>(time).count();
    const double wobble = faults.frozen ? 0 : 1e-4 * static_cast<double>(number % 97);
    out.value.real = faults.paused  ? dcgm::kBlank
                     : faults.zeros ? 0
                                    : gpu->busy + wobble + (whole ? 0 : 0.1);
    if (faults.keeps_values) kept_[{entity, field}] = out;
    last_[{entity, field}] = out;
  }

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool hung_ = false;
  dcgm::Handle life_ = 1;
  std::set<std::string> names_;
  std::uintptr_t next_group_ = 0;
  std::map<dcgm::Group, unsigned int> groups_;
  std::map<std::pair<dcgm::Entity, dcgm::FieldId>, dcgm::FieldValue> kept_, last_;
};

}  // namespace derate
