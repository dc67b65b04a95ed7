// A connection to a running DCGM host engine: which GPUs it has, what it measures for us, and the
// newest values.
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
#include "core/sample.h"
#include "device/dcgm/dcgm_address.h"
#include "device/dcgm/dcgm_library.h"

namespace derate {

// Activity of one entity over the engine's last period.
struct DcgmReading {
  std::string uuid;                 // of the GPU
  std::optional<int> gpu_instance;  // of a MIG instance, NVML's number; empty: the whole GPU
  Activity activity;  // graphics, sm, tensor, dram; what is blank or no share is empty
  WallTime time{};    // of the newest value, as the engine says
};

// Of the fields that `groups` lists, the ones to measure: the most that fit into one pass.
// Ascending by number.
std::vector<dcgm::FieldId> fields_of_one_pass(std::span<const dcgm::MetricGroup> groups);

// A share of an entity that is one: no blank, no error, between 0 and 1.
struct DcgmShare {
  dcgm::Entity entity;
  dcgm::FieldId field = 0;
  Fraction share{};
  WallTime time{};
};
std::vector<DcgmShare> sound_shares(std::span<const dcgm::FieldValue> values);

// The shares of one entity together. One that is a period older than the newest is left out.
struct DcgmActivity {
  Activity activity;
  WallTime time{};  // of the newest
};
std::optional<DcgmActivity> activity_of(std::span<const DcgmShare> shares, Duration period);

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

  // Has the engine measure the GPU, and its MIG instances, each `period`; again: with another
  // period, or with the instances that there are now. Errors: not_found for a GPU that the engine
  // does not have; not_supported where it cannot measure activity; busy while another process has
  // the profiling hardware; io when the connection is lost.
  Result<void> watch(const std::string& uuid, Duration period);
  // The engine stops; a GPU that is not watched is fine.
  void unwatch(const std::string& uuid);
  // The newest values of all that is watched, in one round trip for each 32 entities.
  // Errors: those of the library.
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
    Duration period{};
  };

  DcgmEngine(std::shared_ptr<const DcgmLibrary> library, dcgm::Handle handle)
      : library_(std::move(library)), handle_(handle) {}
  Result<void> check(dcgm::Return code, const char* call) const;
  Result<void> find_gpus();
  Result<std::vector<dcgm::FieldId>> find_fields(unsigned int gpu);
  std::vector<Part> find_parts(const std::string& uuid, unsigned int gpu);
  Result<dcgm::FieldGroup> group_of(const std::vector<dcgm::FieldId>& fields);
  Result<dcgm::Group> group_of(const std::vector<Part>& parts);
  std::string next_name();

  std::shared_ptr<const DcgmLibrary> library_;
  dcgm::Handle handle_;
  std::string version_;
  std::map<std::string, unsigned int> gpus_;  // by UUID, the engine's numbers
  std::map<std::string, Watched> watched_;
  std::map<std::vector<dcgm::FieldId>, dcgm::FieldGroup> field_groups_;
  std::vector<dcgm::FieldValue> values_;  // room for an answer
  int names_ = 0;                         // given so far
};

}  // namespace derate
