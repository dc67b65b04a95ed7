// A connection to a running DCGM host engine: the GPUs that it has, what it measures for us, and
// the newest values.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/dcgm_address.h"
#include "core/sample.h"
#include "device/dcgm/dcgm_library.h"

namespace derate {

// Activity of one entity over the engine's last period.
struct DcgmReading {
  std::string uuid;                 // of the GPU
  std::optional<int> gpu_instance;  // of a MIG instance, NVML's number; empty: the whole GPU
  Activity activity;  // of the fields that are measured; empty: the engine has no sound value
  WallTime time{};    // of the newest value, as the engine says
};

// Selects fields from `groups` that one pass can measure: as many as it can of graphics, SM, tensor
// and DRAM activity, then of the others that Sample::activity has. Ascending by number.
std::vector<dcgm::FieldId> fields_of_one_pass(std::span<const dcgm::MetricGroup> groups);

// A value that passed the checks: its status is ok, it is not blank, and it is possible.
struct DcgmValue {
  dcgm::Entity entity;
  dcgm::FieldId field = 0;
  double value = 0;  // a share in [0, 1], or bytes a second
  WallTime time{};
};
// Returns the values of our fields that pass; a share up to 1.1 counts as 1.
std::vector<DcgmValue> sound_values(std::span<const dcgm::FieldValue> values);

struct DcgmActivity {
  Activity activity;
  WallTime time{};  // of the newest value
};
// Combines the values of one entity. It leaves out each value that is a period older than the
// newest. Empty: there are no values.
std::optional<DcgmActivity> activity_of(std::span<const DcgmValue> values, Duration period);

// Every call may block for as long as the engine likes; one thread at a time makes them.
class DcgmEngine {
 public:
  // Errors: those of the library; query_failed where the engine does not answer.
  static Result<std::unique_ptr<DcgmEngine>> connect(std::shared_ptr<const DcgmLibrary> library,
                                                     const DcgmAddress& address);

  DcgmEngine(const DcgmEngine&) = delete;
  DcgmEngine& operator=(const DcgmEngine&) = delete;
  // The engine forgets what this connection had it measure.
  ~DcgmEngine();

  // "4.6.0"; empty where the engine does not say.
  const std::string& version() const { return version_; }

  // Returns the time of the newest activity of the GPU, whoever has the engine measure it; empty:
  // the engine has none. Errors: not_found for a GPU that the engine does not have; those of the
  // library.
  Result<std::optional<WallTime>> measured_at(const std::string& uuid);
  // Has the engine measure the GPU, and its MIG instances, each `period`; again: with another
  // period, or with the instances that there are now. Errors: not_found for a GPU that the engine
  // does not have; not_supported where it cannot measure activity; busy while another process has
  // the profiling hardware; io when the connection is lost.
  Result<void> watch(const std::string& uuid, Duration period);
  // Has the engine stop; does nothing for a GPU that is not watched.
  void unwatch(const std::string& uuid);
  // Reads the newest values of all watched entities, in one round trip for each 32 of them.
  // A GPU that fails alone has none. Errors: io when the connection is lost.
  Result<std::vector<DcgmReading>> read();

 private:
  struct Part {
    dcgm::Entity entity;
    std::optional<int> gpu_instance;
    bool operator==(const Part&) const = default;
  };
  struct Watched {
    std::vector<Part> parts;  // the GPU first
    std::vector<dcgm::FieldId> fields;
    dcgm::Group group{};
    dcgm::FieldGroup field_group{};
    Duration period{};
  };

  DcgmEngine(std::shared_ptr<const DcgmLibrary> library, dcgm::Handle handle)
      : library_(std::move(library)), handle_(handle) {}
  Result<void> check(dcgm::Return code, const char* call) const;
  Result<void> find_gpus();
  Result<unsigned int> find_gpu(const std::string& uuid);
  Result<std::vector<dcgm::FieldId>> find_fields(unsigned int gpu);
  std::vector<Part> find_parts(const std::string& uuid, unsigned int gpu);
  Result<dcgm::FieldGroup> group_of(const std::vector<dcgm::FieldId>& fields);
  Result<dcgm::Group> group_of(const std::vector<Part>& parts);
  template <class Create>
  dcgm::Return create_named(Create create);

  std::shared_ptr<const DcgmLibrary> library_;
  dcgm::Handle handle_;
  std::string version_;
  std::map<std::string, unsigned int> gpus_;  // by UUID, the engine's numbers
  std::map<std::string, Watched> watched_;
  std::map<std::vector<dcgm::FieldId>, dcgm::FieldGroup> field_groups_;
  std::vector<dcgm::FieldValue> values_;  // room for an answer
  int names_ = 0;                         // tried so far
};

}  // namespace derate
