#include "lab/published_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/text.h"
#include "lab/figures.h"

namespace derate {
namespace {

// "EfficientFix" and "efficient-fix" are one name.
std::string plain_name(std::string_view name) {
  std::string out;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)))
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

struct Column {
  std::string label;
  std::size_t efficiency = 0, performance = 0;
};

Result<std::vector<Column>> columns_of(const std::vector<std::string_view>& head,
                                       std::string_view file,
                                       const std::vector<std::string>& labels) {
  std::vector<Column> out;
  for (const std::string& label : labels) {
    Column column{label};
    for (std::size_t i = 1; i < head.size(); ++i) {
      if (plain_name(head[i]) == plain_name("eff_" + label)) column.efficiency = i;
      if (plain_name(head[i]) == plain_name("perf_" + label)) column.performance = i;
    }
    if (column.efficiency > 0 && column.performance > 0) out.push_back(column);
  }
  if (out.empty())
    return Error{Errc::bad_config,
                 fmt::format("{}:1: no columns eff_NAME and perf_NAME of a policy of the "
                             "experiment; its labels are {}",
                             file, fmt::join(labels, ", "))};
  return out;
}

Result<double> ratio(std::string_view cell, std::string_view file, std::size_t line) {
  const auto value = parse_double(cell);
  if (!value || *value <= 0 || *value > 100)
    return Error{Errc::bad_data,
                 fmt::format("{}:{}: '{}': wanted a ratio in (0, 100]", file, line, cell)};
  return *value;
}

}  // namespace

Result<std::vector<PublishedFigure>> parse_published_figures(
    std::string_view csv, std::string_view file, const std::vector<std::string>& labels) {
  std::vector<std::string_view> lines;
  for (std::string_view line : split(csv, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
  }
  const auto head = split(lines.front(), ',');
  const auto columns = TRY(columns_of(head, file, labels));
  std::vector<PublishedFigure> out;
  for (const Column& column : columns)
    for (std::size_t i = 1; i < lines.size(); ++i) {
      if (lines[i].empty()) continue;
      const auto cells = split(lines[i], ',');
      if (cells.size() != head.size())
        return Error{Errc::bad_data, fmt::format("{}:{}: {} cells, the first line has {}", file,
                                                 i + 1, cells.size(), head.size())};
      const double efficiency = TRY(ratio(cells[column.efficiency], file, i + 1));
      const double performance = TRY(ratio(cells[column.performance], file, i + 1));
      out.push_back({column.label, std::string(cells[0]), efficiency, performance});
    }
  return out;
}

double BesidePublished::largest_difference() const {
  return std::max(std::abs(gain_difference()), std::abs(loss_difference()));
}

std::vector<BesidePublished> beside_published(const StageResult& stage,
                                              const std::vector<PublishedFigure>& published) {
  std::vector<BesidePublished> out;
  for (const PublishedFigure& figure : published)
    for (const PolicyResult& policy : stage.policies) {
      if (policy.label != figure.policy) continue;
      for (const AppResult& app : policy.apps)
        if (app.app == figure.app && app.jobs > 0)
          out.push_back({figure, app.gain.mean, app.loss.mean});
    }
  return out;
}

}  // namespace derate
