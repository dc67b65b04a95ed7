// The caches of models of work, which the policies of governed GPUs read and add to.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "base/clock.h"
#include "core/capability.h"
#include "core/envelope.h"
#include "store/queued_model_cache.h"

namespace derate {

// Two files, so that what was learned on simulated GPUs is never taken for real. An empty path:
// nothing is kept of those.
struct ModelFiles {
  std::string real, simulated;
};

class ModelCacheProvider {
 public:
  // With new models written, or read only.
  enum class Use { keep, recall };

  // `clock` outlives it; `on_error` as QueuedModelCache's.
  ModelCacheProvider(ModelFiles files, const Clock& clock, SqliteModelCache::OnError on_error = {},
                     BackgroundWorker::Where where = BackgroundWorker::Where::on_a_thread);
  ~ModelCacheProvider();

  // For a policy on this GPU; as long as this. Gives only models that are relative to the same
  // highest clock. A chip that has no facts is known by its product's name. Null: nothing is kept.
  ModelCache* of(const Capability& capability, const Envelope& envelope, Use use);

 private:
  class View;
  ModelFiles files_;
  const Clock& clock_;
  SqliteModelCache::OnError on_error_;
  BackgroundWorker::Where where_;
  std::unique_ptr<QueuedModelCache> real_, simulated_;  // null: not asked for yet
  std::map<std::tuple<std::string, double, bool, Use>, std::unique_ptr<View>> views_;
};

}  // namespace derate
