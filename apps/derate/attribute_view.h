// The output of `derate attribute` as text: the power of each GPU, attributed to its tenants; and
// the width of the terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/units.h"

namespace derate::cli {

// 90 % of a normal distribution lie within that many standard deviations.
inline constexpr double kNinetyPercent = 1.645;

// `document`: {"source", "gpus": [...]} with each GPU as GpuAttribution::json() has it. `width`:
// columns of the terminal; names are cut where it is narrow.
std::string attribution_text(const nlohmann::ordered_json& document, std::size_t width);

// Of a tenant: "python3 (4242)"; "job 17", "team/pod-3", "-"; what its share is known from, with a
// mark where that is more prior than measurement.
std::string tenant_name(const nlohmann::ordered_json& tenant);
std::string group_name(const nlohmann::ordered_json& tenant);
std::string source_text(const nlohmann::ordered_json& tenant);

// In words where energy is of GPUs: a bill, savings.
inline constexpr const char* kBoardsOnly =
    "Energy is of GPU boards only, without processors, memory and cooling.";

// "88 %": how much of the used energy was governed with an estimate; "-" if none was used. Energy
// and saving are written down at different moments, so that the newest seconds may be in one of
// them alone: at most 100 %.
std::string governed_share(Joules used, Joules governed);
// "88 % of the energy was governed with an estimate, the rest saved nothing".
std::string governed_sentence(Joules used, Joules governed);

// Cut to that many columns, the cut marked.
std::string cut(const std::string& text, std::size_t width);

// Of the terminal on standard output; empty where there is none.
std::optional<std::size_t> width_of_terminal();
// The same; $COLUMNS, else 120 where there is none.
std::size_t terminal_width();

}  // namespace derate::cli
