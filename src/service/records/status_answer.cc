#include "service/records/status_answer.h"

#include "base/json.h"

namespace derate {

Result<Json> status_answer(const Snapshot& snapshot, const std::string& gpus) {
  if (gpus.empty()) return snapshot_json(snapshot);
  std::vector<GpuId> ids;
  for (const GpuSnapshot& gpu : snapshot.gpus) ids.push_back(gpu.id);
  Snapshot chosen = snapshot;
  chosen.gpus.clear();
  for (const int at : TRY(select_gpus(ids, gpus)))
    chosen.gpus.push_back(snapshot.gpus[static_cast<std::size_t>(at)]);
  return snapshot_json(chosen);
}

}  // namespace derate
