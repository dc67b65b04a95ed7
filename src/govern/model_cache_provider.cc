#include "govern/model_cache_provider.h"

#include <utility>

#include "core/chip_facts.h"

namespace derate {

// One kind of GPU's part of a file.
class ModelCacheProvider::View final : public ModelCache {
 public:
  View(QueuedModelCache& file, std::string chip, Megahertz highest, Use use)
      : file_(file), chip_(std::move(chip)), highest_(highest), use_(use) {}

  std::vector<PhaseModel> recall(const std::string&) override {
    using IfMissing = QueuedModelCache::IfMissing;
    std::vector<PhaseModel> out =
        file_.recall(chip_, use_ == Use::keep ? IfMissing::make : IfMissing::leave);
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
  QueuedModelCache& file_;
  std::string chip_;
  Megahertz highest_;
  Use use_;
};

ModelCacheProvider::ModelCacheProvider(ModelFiles files, const Clock& clock,
                                       SqliteModelCache::OnError on_error,
                                       BackgroundWorker::Where where)
    : files_(std::move(files)), clock_(clock), on_error_(std::move(on_error)), where_(where) {}

ModelCacheProvider::~ModelCacheProvider() = default;

ModelCache* ModelCacheProvider::of(const Capability& capability, const Envelope& envelope,
                                   Use use) {
  const bool simulated = is_simulated(capability.id);
  const std::string& path = simulated ? files_.simulated : files_.real;
  if (path.empty()) return nullptr;
  const ChipFacts* facts = facts_of_product(capability.id.name);
  const std::string chip = (facts == nullptr ? capability.id.name : std::string(facts->chip)) +
                           modes_key(capability.modes);
  auto& view = views_[{chip, envelope.highest().value(), simulated, use}];
  auto& file = simulated ? simulated_ : real_;
  if (file == nullptr) file = std::make_unique<QueuedModelCache>(path, clock_, on_error_, where_);
  if (view == nullptr) view = std::make_unique<View>(*file, chip, envelope.highest(), use);
  return view.get();
}

}  // namespace derate
