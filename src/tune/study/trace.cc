#include "tune/study/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/text.h"

namespace derate {
namespace {

constexpr TraceTask kTasks[] = {
    {"resnet50/imagenet", "imagenet", "resnet50", "adadelta", 0.65, false, 100, 256, {0.55, 0.6}},
    {"shufflenetv2/cifar100",
     "cifar100",
     "shufflenetv2",
     "adadelta",
     0.6,
     false,
     100,
     1024,
     {0.5, 0.55}},
    {"bert/squad", "squad", "bert_base_uncased", "adamw", 84.0, false, 6, 32, {83.0, 84.5}},
    {"ncf/movielens", "movielens-1m", "ncf", "adam", 0.41, false, 100, 1024, {0.375, 0.4}},
    {"deepspeech2/librispeech",
     "librispeech",
     "deepspeech2",
     "adamw",
     40.0,
     true,
     16,
     256,
     {50, 45}},
    {"bert/sentiment140",
     "sentiment140",
     "bert_base_uncased",
     "adamw",
     0.84,
     false,
     10,
     128,
     {0.83, 0.845}},
};

// One line of a table, its cells by column.
class Row {
 public:
  Row(const std::map<std::string_view, std::size_t>& columns, std::string_view line,
      std::string where)
      : columns_(columns), cells_(split(line, ',')), where_(std::move(where)) {}

  std::size_t size() const { return cells_.size(); }
  std::string_view text(std::string_view column) const { return trim(cells_[columns_.at(column)]); }
  Result<double> number(std::string_view column, double lowest, double highest) const {
    const auto value = parse_double(text(column));
    if (value && *value >= lowest && *value <= highest) return *value;
    return bad(column, fmt::format("a number in [{}, {}]", lowest, highest));
  }
  Result<int> integer(std::string_view column, int lowest, int highest) const {
    const auto value = parse_integer(text(column));
    if (value && *value >= lowest && *value <= highest) return static_cast<int>(*value);
    return bad(column, fmt::format("an integer in [{}, {}]", lowest, highest));
  }
  Error bad(std::string_view column, const std::string& wanted) const {
    return {Errc::bad_data,
            fmt::format("{}: {} '{}': wanted {}", where_, column, text(column), wanted)};
  }

 private:
  const std::map<std::string_view, std::size_t>& columns_;
  std::vector<std::string_view> cells_;
  std::string where_;
};

// Calls `take` with every line after the header, which must have these columns.
Result<void> for_each_row(std::string_view csv, std::string_view file,
                          std::span<const std::string_view> wanted,
                          const std::function<Result<void>(const Row&)>& take) {
  std::map<std::string_view, std::size_t> columns;
  std::size_t number = 0;
  for (const std::string_view line : split(csv, '\n')) {
    ++number;
    if (trim(line).empty()) continue;
    const std::string where = fmt::format("{}:{}", file, number);
    if (columns.empty()) {
      for (const std::string_view name : split(trim(line), ','))
        columns.emplace(trim(name), columns.size());
      for (const std::string_view name : wanted)
        if (!columns.contains(name))
          return Error{Errc::bad_data, fmt::format("{}: no column '{}'", where, name)};
      continue;
    }
    const Row row(columns, line, where);
    if (row.size() != columns.size())
      return Error{Errc::bad_data, fmt::format("{}: {} cells where the header has {}", where,
                                               row.size(), columns.size())};
    TRY(take(row));
  }
  if (columns.empty()) return Error{Errc::bad_data, fmt::format("{}: empty", file)};
  return {};
}

constexpr int kLargestBatch = 1 << 24;

template <class R>
bool is_of(const R& row, const TraceTask& task) {
  return row.dataset == task.dataset && row.network == task.network &&
         row.optimizer == task.optimizer;
}

// What both traces say of a training, in a TrainRow or a PowerRow.
template <class R>
Result<void> read_training(const Row& row, R& out) {
  out.dataset = row.text("dataset");
  out.network = row.text("network");
  out.optimizer = row.text("optimizer");
  out.batch_size = TRY(row.integer("batch_size", 1, kLargestBatch));
  return {};
}

std::vector<std::optional<int>> runs_of(const TraceTask& task, std::span<const TrainRow> train,
                                        int size) {
  std::vector<std::optional<int>> out;
  for (const TrainRow& row : train)
    if (is_of(row, task) && row.batch_size == size && row.target == task.target)
      out.push_back(row.epochs);
  return out;
}

std::vector<TracePoint> points_of(const TraceTask& task, std::span<const PowerRow> power,
                                  int size) {
  std::vector<TracePoint> out;
  for (const PowerRow& row : power)
    if (is_of(row, task) && row.batch_size == size)
      out.push_back({row.limit_w, row.epoch_s, row.power_w});
  std::sort(out.begin(), out.end(),
            [](const TracePoint& a, const TracePoint& b) { return a.limit_w < b.limit_w; });
  return out;
}

Result<void> check_points(const TraceTask& task, const TraceSize& size) {
  for (std::size_t i = 1; i < size.points.size(); ++i)
    if (size.points[i].limit_w == size.points[i - 1].limit_w)
      return Error{Errc::bad_data, fmt::format("{}: batch size {} has two rows for {} W", task.name,
                                               size.batch_size, size.points[i].limit_w)};
  return {};
}

}  // namespace

std::span<const TraceTask> trace_tasks() { return kTasks; }

Result<std::vector<TrainRow>> parse_train_trace(std::string_view csv, std::string_view file) {
  static constexpr std::string_view kColumns[] = {"dataset",   "network",       "batch_size",
                                                  "optimizer", "target_metric", "target_epoch"};
  std::vector<TrainRow> out;
  TRY(for_each_row(csv, file, kColumns, [&](const Row& row) -> Result<void> {
    TrainRow one;
    TRY(read_training(row, one));
    one.target = TRY(row.number("target_metric", -1e12, 1e12));
    // Never reached: empty, or as pandas writes it.
    if (const auto text = row.text("target_epoch"); !text.empty() && to_lower(text) != "nan")
      one.epochs = TRY(row.integer("target_epoch", 1, 1 << 20));
    out.push_back(std::move(one));
    return {};
  }));
  return out;
}

Result<std::vector<PowerRow>> parse_power_trace(std::string_view csv, std::string_view file) {
  static constexpr std::string_view kColumns[] = {"dataset",      "network",     "batch_size",
                                                  "optimizer",    "power_limit", "time_per_epoch",
                                                  "average_power"};
  std::vector<PowerRow> out;
  TRY(for_each_row(csv, file, kColumns, [&](const Row& row) -> Result<void> {
    PowerRow one;
    TRY(read_training(row, one));
    one.limit_w = TRY(row.number("power_limit", 1, 1e5));
    one.epoch_s = TRY(row.number("time_per_epoch", 1e-6, 1e9));
    one.power_w = TRY(row.number("average_power", 1e-3, 1e5));
    out.push_back(std::move(one));
    return {};
  }));
  return out;
}

Result<TraceJob> make_trace_job(const TraceTask& task, std::span<const TrainRow> train,
                                std::span<const PowerRow> power) {
  TraceJob job{.task = task};
  std::vector<int> sizes;
  bool has_target = false;
  for (const TrainRow& row : train)
    if (is_of(row, task)) {
      sizes.push_back(row.batch_size);
      has_target |= row.target == task.target && row.epochs.has_value();
    }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  if (!has_target)
    return Error{Errc::not_found, fmt::format("{}: the train trace has no run to target {}",
                                              task.name, task.target)};
  for (const int size : sizes) {
    TraceSize one{size, points_of(task, power, size), runs_of(task, train, size)};
    if (one.points.empty() || one.runs.empty()) continue;
    TRY(check_points(task, one));
    job.max_power_w = std::max(job.max_power_w, one.points.back().limit_w);
    job.sizes.push_back(std::move(one));
  }
  if (job.sizes.empty())
    return Error{Errc::not_found, fmt::format("{}: no batch size is in both traces", task.name)};
  job.default_size = std::min(task.default_size, job.sizes.back().batch_size);
  for (const TraceSize& size : job.sizes)
    if (size.batch_size == job.default_size) return job;
  return Error{Errc::not_found, fmt::format("{}: its default batch size {} is not in both traces",
                                            task.name, job.default_size)};
}

void change_target(TraceJob& job, const TraceJob& later) {
  for (TraceSize& size : job.sizes) {
    const auto at =
        std::find_if(later.sizes.begin(), later.sizes.end(),
                     [&](const TraceSize& each) { return each.batch_size == size.batch_size; });
    size.later_runs = {std::nullopt};
    if (at != later.sizes.end()) size.later_runs = at->runs;
  }
}

void move_sizes(TraceJob& job, int places) {
  const int last = static_cast<int>(job.sizes.size()) - 1;
  for (int i = 0; i <= last; ++i)
    job.sizes[static_cast<std::size_t>(i)].later_runs =
        job.sizes[static_cast<std::size_t>(std::clamp(i + places, 0, last))].runs;
}

SizeProblem problem_of(const TraceJob& job) {
  SizeProblem out;
  for (const TraceSize& size : job.sizes) out.batch_sizes.push_back(size.batch_size);
  out.default_size = job.default_size;
  out.max_epochs = job.task.max_epochs;
  out.target = job.task.target;
  out.lower_is_better = job.task.lower_is_better;
  return out;
}

}  // namespace derate
