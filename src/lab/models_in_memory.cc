#include "lab/models_in_memory.h"

#include "store/model_cache.h"

namespace derate {

std::vector<PhaseModel> ModelsInMemory::recall(const std::string& chip) {
  std::vector<PhaseModel> out;
  for (auto one = kept_.rbegin(); one != kept_.rend(); ++one)
    if (one->model.chip == chip) {
      out.push_back(one->model);
      out.back().age = clock_.now() - one->at;
    }
  return out;
}

std::int64_t ModelsInMemory::keep(const PhaseModel& model) {
  std::erase_if(kept_, [&](const Kept& one) { return one.model.id == model.id; });
  if (kept_.size() >= SqliteModelCache::kMostOfAChip) kept_.erase(kept_.begin());
  kept_.push_back({model, clock_.now()});
  if (model.id == 0) kept_.back().model.id = ++last_id_;
  return kept_.back().model.id;
}

}  // namespace derate
