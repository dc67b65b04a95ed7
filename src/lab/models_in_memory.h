// Model cache in memory: policies' models of work, kept from job to job as SqliteModelCache keeps
// them, without a disk.
#pragma once

#include <vector>

#include "base/clock.h"
#include "core/model_cache.h"

namespace derate {

class ModelsInMemory final : public ModelCache {
 public:
  // `clock` outlives it.
  explicit ModelsInMemory(const Clock& clock) : clock_(clock) {}
  std::vector<PhaseModel> recall(const std::string& chip) override;
  std::int64_t keep(const PhaseModel& model) override;

 private:
  struct Kept {
    PhaseModel model;
    Instant at{};
  };
  const Clock& clock_;
  std::vector<Kept> kept_;  // the newest last
  std::int64_t last_id_ = 0;
};

}  // namespace derate
