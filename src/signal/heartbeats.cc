#include "signal/heartbeats.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

Error not_allowed(std::string_view key, std::string_view value, std::string_view allowed) {
  return {Errc::invalid_argument, fmt::format("{} '{}': allowed is {}", key, value, allowed)};
}

bool is_word(std::string_view text, std::size_t longest) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Result<double> number_in(std::string_view key, std::string_view value, double highest) {
  const auto number = parse_double(value);
  if (!number || !(*number >= 0 && *number <= highest))
    return not_allowed(key, value, fmt::format("a number in [0, {}]", highest));
  return *number;
}

Result<void> assign(BeatMessage& out, std::string_view key, std::string_view value) {
  constexpr std::size_t kLongestGpu = 256;
  if (key == "done") {
    out.done = TRY(number_in(key, value, kMostDone));
  } else if (key == "max_loss") {
    out.max_loss = Fraction(TRY(number_in(key, value, 0.5)));
  } else if (key == "phase") {
    if (!is_word(value, kLongestPhase))
      return not_allowed(key, "", fmt::format("1 to {} printing characters", kLongestPhase));
    out.phase = value;
  } else if (key == "gpu") {
    if (!is_word(value, kLongestGpu)) return not_allowed(key, "", "an index, UUID or PCI bus id");
    out.gpu = value;
  } else if (key == "delta") {
    if (!is_word(value, kLongestAsked))
      return not_allowed(key, "", fmt::format("1 to {} printing characters", kLongestAsked));
    out.asked = value;
  } else if (key == "job") {
    const auto job = parse_number<std::uint32_t>(value);
    if (!job || *job == 0) return not_allowed(key, value, "a number in [1, 4294967295]");
    out.job = std::to_string(*job);
  } else if (key == "pid") {
    const auto pid = parse_number<std::int32_t>(value);
    if (!pid || *pid < 1) return not_allowed(key, value, "the number of a process");
    out.pid = *pid;
  } else {
    return Error{Errc::invalid_argument, "there are done, phase, max_loss, delta, job, gpu, pid"};
  }
  return {};
}

}  // namespace

Result<BeatMessage> parse_beat(std::string_view line) {
  if (line.size() > kLongestBeat)
    return Error{Errc::invalid_argument, fmt::format("longer than {} bytes", kLongestBeat)};
  if (line.ends_with('\n')) line.remove_suffix(1);
  BeatMessage out;
  std::set<std::string_view> seen;
  for (const std::string_view part : split(line, ' ')) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos)
      return Error{Errc::invalid_argument, "wanted KEY=VALUE, one blank between them"};
    const std::string_view key = part.substr(0, equals);
    if (!seen.insert(key).second) return Error{Errc::invalid_argument, "a key is there twice"};
    TRY(assign(out, key, part.substr(equals + 1)));
  }
  if (!out.is_beat() && out.asked.empty() && out.job.empty())
    return Error{Errc::invalid_argument, "wanted done, phase, max_loss, delta or job"};
  return out;
}

std::string format_beat(const BeatMessage& message) {
  std::string out;
  const auto put = [&](std::string_view key, const std::string& value) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", key, value);
  };
  if (message.done) put("done", fmt::format("{}", *message.done));
  if (!message.phase.empty()) put("phase", message.phase);
  if (message.max_loss) put("max_loss", fmt::format("{}", message.max_loss->value()));
  if (!message.asked.empty()) put("delta", message.asked);
  if (!message.job.empty()) put("job", message.job);
  if (!message.gpu.empty()) put("gpu", message.gpu);
  if (message.pid != 0) put("pid", fmt::format("{}", message.pid));
  return out;
}

Progress progress_of(const BeatMessage& message, Instant time) {
  return {.source = ProgressSource::heartbeats, .done = *message.done, .time = time};
}

}  // namespace derate
