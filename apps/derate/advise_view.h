// The output of `derate advise`, as text and as JSON: the advice for each GPU with its evidence,
// and the list of findings.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "advise/advice.h"

namespace derate::cli {

// Of one GPU.
struct AdvisedGpu {
  GpuId gpu;
  std::optional<WorkEvidence> evidence;  // empty: too few readings
  std::vector<Advice> advice;            // the dearest first
  std::string policy = {};               // that governs it; empty: none, or not known
};

std::string advice_text(const std::vector<AdvisedGpu>& gpus, const std::optional<Advice>& of_all,
                        std::size_t width);
nlohmann::ordered_json advice_json(const std::vector<AdvisedGpu>& gpus,
                                   const std::optional<Advice>& of_all);

// What there is to advise.
std::string findings_text(std::size_t width);
nlohmann::ordered_json findings_json();

}  // namespace derate::cli
