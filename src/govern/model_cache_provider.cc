#include "govern/model_cache_provider.h"

#include <filesystem>

#include "core/chip_facts.h"

namespace derate {

// One kind of GPU's part of a file.
class ModelCacheProvider::View final : public ModelCache {
 public:
  View(SqliteModelCache& file, std::string path, std::string chip, Megahertz highest, Use use)
      : file_(file), path_(std::move(path)), chip_(std::move(chip)), highest_(highest), use_(use) {}

  std::vector<PhaseModel> recall(const std::string&) override {
    std::error_code ignored;
    if (use_ == Use::recall && !std::filesystem::exists(path_, ignored)) return {};
    std::vector<PhaseModel> out = file_.recall(chip_);
    std::erase_if(out, [&](const PhaseModel& model) { return model.highest != highest_; });
    return out;
  }
  // Nobody sets the clocks that a dry run learns at: what it takes for the highest may be what
  // another governor holds, and the next promise would be relative to that.
  std::int64_t keep(const PhaseModel& model) override {
    if (use_ == Use::recall) return 0;
    PhaseModel mine = model;
    mine.chip = chip_;
    mine.highest = highest_;
    return file_.keep(mine);
  }

 private:
  SqliteModelCache& file_;
  std::string path_, chip_;
  Megahertz highest_;
  Use use_;
};

ModelCacheProvider::ModelCacheProvider(const ModelFiles& files, const Clock& clock,
                                       const SqliteModelCache::Tell& tell)
    : files_(files), real_(files.real, clock, tell), simulated_(files.simulated, clock, tell) {}

ModelCacheProvider::~ModelCacheProvider() = default;

ModelCache* ModelCacheProvider::of(const Capability& capability, const Envelope& envelope,
                                   Use use) {
  const bool simulated = is_simulated(capability.id);
  const std::string& path = simulated ? files_.simulated : files_.real;
  if (path.empty()) return nullptr;
  const ChipFacts* facts = facts_of_product(capability.id.name);
  const std::string chip = facts == nullptr ? capability.id.name : facts->chip;
  auto& view = views_[{chip, envelope.highest().value(), simulated, use}];
  if (view == nullptr)
    view =
        std::make_unique<View>(simulated ? simulated_ : real_, path, chip, envelope.highest(), use);
  return view.get();
}

}  // namespace derate
