// The output of `derate advise --history`, as text and as JSON: a recommended promise for each GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "service/answers/recommendation.h"

namespace derate::cli {

// Of one GPU, in the time that was asked for.
struct RecommendedGpu {
  GpuId gpu;
  std::int64_t from_unix_seconds = 0, to_unix_seconds = 0;
  Recommendation said;
};

std::string recommendation_text(const std::vector<RecommendedGpu>& gpus, std::size_t width);
nlohmann::ordered_json recommendation_json(const std::vector<RecommendedGpu>& gpus);

}  // namespace derate::cli
