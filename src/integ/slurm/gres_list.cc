#include "integ/slurm/gres_list.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr std::string_view kGpuLine = "Gres Name=gpu ";
constexpr std::size_t kMostFiles = 1024;
constexpr unsigned int kNvidiaMajor = 195;

// The value of "KEY=VALUE" among words; empty: there is none.
std::string_view word_of(std::string_view line, std::string_view key) {
  for (const std::string_view word : split(line, ' '))
    if (word.starts_with(key)) return word.substr(key.size());
  return {};
}

// "3" or "0-3" of a list between brackets, behind `prefix`.
bool add_range(std::string_view range, const std::string& prefix, std::vector<std::string>& out) {
  const std::size_t dash = range.find('-');
  const auto first = parse_integer(range.substr(0, dash));
  const auto last = dash == std::string_view::npos ? first : parse_integer(range.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first ||
      *last - *first >= static_cast<std::int64_t>(kMostFiles))
    return false;
  for (std::int64_t number = *first; number <= *last; ++number)
    out.push_back(prefix + std::to_string(number));
  return out.size() <= kMostFiles;
}

// "/dev/nvidia3" or "/dev/nvidia[0-1,3]". Empty: neither.
std::vector<std::string> expanded(std::string_view files) {
  const std::size_t open = files.find('[');
  if (open == std::string_view::npos)
    return files.find(',') == std::string_view::npos ? std::vector<std::string>{std::string(files)}
                                                     : std::vector<std::string>{};
  if (!files.ends_with(']')) return {};
  std::vector<std::string> out;
  const std::string prefix(files.substr(0, open));
  for (const auto range : split(files.substr(open + 1, files.size() - open - 2), ','))
    if (!add_range(range, prefix, out)) return {};
  return out;
}

}  // namespace

Result<std::vector<std::string>> parse_gres_list(std::string_view text) {
  std::vector<std::string> out;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t at = line.find(kGpuLine);
    if (at == std::string_view::npos) continue;
    const std::string_view rest = line.substr(at);
    const auto count = parse_integer(word_of(rest, "Count="));
    const std::string_view file = word_of(rest, "File=");
    const auto files = file.starts_with('/') ? expanded(file) : std::vector<std::string>{};
    if (!count || files.empty() || *count != static_cast<std::int64_t>(files.size()))
      return Error{Errc::bad_data,
                   fmt::format("slurmd -G: '{}' does not have one device file a GPU",
                               log_text(trim(line), 200))};
    out.insert(out.end(), files.begin(), files.end());
    if (out.size() > kMostFiles)
      return Error{Errc::bad_data, "slurmd -G: there are more than 1024 GPUs"};
  }
  return out;
}

std::optional<int> nvidia_minor(const std::string& path) {
  struct ::stat found {};
  if (::stat(path.c_str(), &found) != 0 || !S_ISCHR(found.st_mode)) return std::nullopt;
  if (major(found.st_rdev) != kNvidiaMajor) return std::nullopt;
  return static_cast<int>(minor(found.st_rdev));
}

}  // namespace derate
