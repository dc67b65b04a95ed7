// Stress grids as text: of each policy, how it fares in every combination.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "lab_view.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// A grid's stages by row, in the order in which the experiment names their values.
struct Grid {
  std::string corner;                // what goes down, what across
  std::vector<std::string> columns;  // values of the last axis that varies
  std::vector<std::pair<std::string, std::vector<std::size_t>>> rows;  // stages
};

std::string with_unit(const Cell::Value& value) {
  return fmt::format("{}{}{}", value.value, *value.axis->unit == '\0' ? "" : " ", value.axis->unit);
}

Grid grid_of(const Plan& plan, const std::vector<std::size_t>& stages) {
  const std::size_t axes = plan.stages[stages.front()].cell.values.size();
  std::vector<std::size_t> varied;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    std::set<double> values;
    for (const std::size_t at : stages) values.insert(plan.stages[at].cell.values[axis].value);
    if (values.size() > 1) varied.push_back(axis);
  }
  Grid out;
  for (const std::size_t axis : varied)
    out.corner += fmt::format("{}{} {}", out.corner.empty() ? "" : ", ",
                              plan.stages[stages.front()].cell.values[axis].axis->label,
                              axis == varied.back() ? "→" : "↓");
  for (const std::size_t at : stages) {
    const auto& values = plan.stages[at].cell.values;
    const std::string column = varied.empty() ? "" : with_unit(values[varied.back()]);
    std::string row;
    for (std::size_t i = 0; i + 1 < varied.size(); ++i)
      row += (row.empty() ? "" : ", ") + with_unit(values[varied[i]]);
    if (std::find(out.columns.begin(), out.columns.end(), column) == out.columns.end())
      out.columns.push_back(column);
    if (out.rows.empty() || out.rows.back().first != row) out.rows.push_back({row, {}});
    out.rows.back().second.push_back(at);
  }
  return out;
}

const PolicyResult& of_policy(const StageResult& stage, const std::string& label) {
  return *std::find_if(stage.policies.begin(), stage.policies.end(),
                       [&](const PolicyResult& policy) { return policy.label == label; });
}

template <class F>
std::string one_grid(const Grid& grid, const std::vector<StageResult>& stages,
                     const std::string& label, const char* title, F&& text) {
  std::vector<std::string> head = {"<" + grid.corner};
  for (const std::string& column : grid.columns) head.push_back(column);
  Table table(head);
  for (const auto& [row, places] : grid.rows) {
    std::vector<std::string> cells = {row};
    for (const std::size_t at : places) {
      const PolicyResult& result = of_policy(stages[at], label);
      cells.push_back(result.jobs > 0 ? text(result) : "not run");
    }
    table.add(std::move(cells));
  }
  return fmt::format("{}: {}\n{}\n", toned(label, Paint::strong), title, table.text());
}

}  // namespace

std::string grids_text(const Plan& plan, const std::vector<StageResult>& stages) {
  std::string out;
  std::vector<std::string> chips;
  for (const StageResult& stage : stages)
    if (chips.empty() || chips.back() != stage.chip) chips.push_back(stage.chip);
  for (const std::string& chip : chips) {
    std::vector<std::size_t> mine;
    for (std::size_t at = 0; at < stages.size(); ++at)
      if (stages[at].chip == chip) mine.push_back(at);
    const Grid grid = grid_of(plan, mine);
    out += toned(chip, Paint::strong) + "\n\n";
    for (const PolicyResult& policy : stages[mine.front()].policies) {
      if (policy.label == plan.policies.front().label) continue;
      out += one_grid(grid, stages, policy.label, "gain of efficiency",
                      [](const PolicyResult& r) { return signed_percent_text(r.gain.mean); });
      out += one_grid(grid, stages, policy.label, "worst application's loss",
                      [](const PolicyResult& r) { return percent_text(r.worst_loss); });
      out += one_grid(grid, stages, policy.label, "jobs with a broken promise",
                      [](const PolicyResult& r) {
                        const auto share = r.broken_share();
                        return share ? percent_text(*share) : std::string("-");
                      });
    }
  }
  return out;
}

}  // namespace derate::cli
