#include "gpu_choice.h"

#include "integ/own_gpus.h"

namespace derate::cli {

Result<std::string> chosen_gpus(const GpuChoice& choice, const std::string& otherwise) {
  if (!choice.named.empty()) return choice.named;
  if (choice.all) return std::string();
  const auto own = TRY(own_gpus());
  return own ? own->choice : otherwise;
}

}  // namespace derate::cli
