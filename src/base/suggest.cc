#include "base/suggest.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"

namespace derate {
namespace {

// Longer lists hide the suggestion that stands beside them.
constexpr std::size_t kShortList = 60;

std::size_t most_edits(std::string_view word) {
  return std::clamp<std::size_t>(word.size() / 3, 1, 3);
}

std::size_t common_beginning(std::string_view a, std::string_view b) {
  const auto [at, ignored] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return static_cast<std::size_t>(at - a.begin());
}

// Among words that are equally near: the same letters in another order are likelier than others,
// and the beginning of a word is mistyped least.
bool fits_better(std::string_view word, std::string_view a, std::string_view b) {
  const auto sorted = [](std::string_view text) {
    std::string letters(text);
    std::sort(letters.begin(), letters.end());
    return letters;
  };
  const bool a_swapped = sorted(word) == sorted(a), b_swapped = sorted(word) == sorted(b);
  if (a_swapped != b_swapped) return a_swapped;
  return common_beginning(word, a) > common_beginning(word, b);
}

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  const std::string from = to_lower(a), to = to_lower(b);
  std::vector<std::size_t> before(to.size() + 1), last(to.size() + 1), row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::swap(before, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const bool same = from[i - 1] == to[j - 1];
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[to.size()];
}

std::optional<std::string> nearest_word(std::string_view word, std::span<const std::string> known) {
  const std::string typed = to_lower(word);
  const std::string* best = nullptr;
  std::size_t least = most_edits(word) + 1;
  for (const std::string& each : known) {
    const std::size_t edits = edit_distance(typed, each);
    // A word of which no letter stays is not what was meant.
    if (edits >= std::max(word.size(), each.size())) continue;
    const bool better = edits < least || (best != nullptr && edits == least &&
                                          fits_better(typed, to_lower(each), to_lower(*best)));
    if (!better) continue;
    best = &each;
    least = edits;
  }
  if (best != nullptr) return *best;
  const auto begins = [&](const std::string& each) { return to_lower(each).starts_with(typed); };
  if (word.size() < 2 || std::count_if(known.begin(), known.end(), begins) != 1)
    return std::nullopt;
  return *std::find_if(known.begin(), known.end(), begins);
}

std::string choices(std::string_view word, std::string_view lead, std::string_view known) {
  std::vector<std::string> words;
  for (const std::string_view each : split(known, ',')) words.emplace_back(trim(each));
  const auto near = nearest_word(word, words);
  if (!near) return std::string(lead) + std::string(known);
  std::string out = "; did you mean '" + *near + "'?";
  if (words.size() > 1 && known.size() <= kShortList) out += " There are: " + std::string(known);
  return out;
}

std::string number_hint(std::string_view text, double lowest, double highest) {
  std::string plain(trim(text));
  const bool percent = plain.ends_with('%');
  if (percent) plain = std::string(trim(std::string_view(plain).substr(0, plain.size() - 1)));
  if (std::count(plain.begin(), plain.end(), ',') == 1 && plain.find('.') == std::string::npos)
    std::replace(plain.begin(), plain.end(), ',', '.');
  auto value = parse_double(plain);
  if (!value) return "";
  if (percent || (highest <= 1 && *value > 1 && *value <= 100)) *value /= 100;
  if (!(*value >= lowest && *value <= highest)) return "";
  return fmt::format("; did you mean {:g}?", *value);
}

}  // namespace derate
