// Whose watts these are, as people and programs see it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace derate::cli {

// 90 % of a normal distribution lie within that many standard deviations.
inline constexpr double kNinetyPercent = 1.645;

// `document`: {"source", "gpus": [...]} with each GPU as GpuAttribution::json() has it. `width`:
// columns of the terminal; names are cut where it is narrow.
std::string attribution_text(const nlohmann::ordered_json& document, std::size_t width);

// "812 J", "2.80 kJ", "1.25 GJ".
std::string energy_text(double joules);

// Cut to that many columns, the cut marked.
std::string cut(const std::string& text, std::size_t width);

// Of the terminal on standard output; $COLUMNS, else 120 where there is none.
std::size_t terminal_width();

}  // namespace derate::cli
