#include "gpu_choice.h"

#include "apps/common/open_gpus.h"
#include "integ/own_gpus.h"

namespace derate::cli {

Result<std::optional<std::string>> chosen_gpus(const GpuChoice& choice, const SimCliOptions& sim) {
  if (!choice.named.empty()) return std::optional(choice.named);
  if (choice.all || !backend_capabilities(sim).hardware) return std::optional(std::string());
  const auto own = TRY(own_gpus());
  return own ? std::optional(own->choice) : std::nullopt;
}

}  // namespace derate::cli
