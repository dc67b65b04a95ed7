#include "integ/pod_wish.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printing.h"
#include "base/text.h"

namespace derate {
namespace {

constexpr std::size_t kLongestShown = 40;

Error refused(const char* key, const std::string& value, const char* allowed) {
  return {Errc::invalid_argument, fmt::format("annotation {} '{}': allowed is {}", key,
                                              log_text(value, kLongestShown), allowed)};
}

bool is_policy_name(const std::string& text) {
  return !text.empty() && text.size() <= 40 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Result<void> read_delta(const std::string& value, PodWish& wish) {
  const auto delta = value.size() <= 20 ? parse_double(value) : std::nullopt;
  if (!delta || !(*delta >= 0 && *delta <= 0.5))
    return refused("delta", value, "a number from 0 to 0.5");
  if (*delta == 0)
    wish.govern = false;
  else
    wish.delta = *delta;
  return {};
}

}  // namespace

// A key can be there once only: annotations are a map. Govern "true" does not undo a delta of 0.
Result<std::optional<PodWish>> parse_pod_wish(const PodAnnotations& annotations) {
  std::optional<PodWish> out;
  for (const auto& [key, value] : annotations) {
    if (key != "delta" && key != "policy" && key != "govern") continue;
    if (!out) out.emplace();
    if (key == "delta") {
      TRY(read_delta(value, *out));
    } else if (key == "policy") {
      if (!is_policy_name(value)) return refused("policy", value, "the name of a policy");
      out->policy = value;
    } else {
      if (value != "true" && value != "false")
        return refused("govern", value, "\"true\" or \"false\"");
      if (value == "false") out->govern = false;
    }
  }
  return out;
}

}  // namespace derate
