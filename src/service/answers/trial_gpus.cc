#include "service/answers/trial_gpus.h"

#include <fmt/format.h>

#include <algorithm>

namespace derate {
namespace {

std::string names_of(std::span<const TuneGpu> gpus) {
  std::string out;
  for (const TuneGpu& gpu : gpus)
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", gpu.id.index, gpu.id.uuid);
  return out;
}

}  // namespace

Result<std::vector<TuneGpu>> choose_gpus(std::span<const TuneGpu> open, const std::string& text) {
  if (open.empty()) return Error{Errc::busy, "no GPU is open now: try again later"};
  if (text.empty() && open.size() > 1)
    return Error{
        Errc::invalid_argument,
        fmt::format("which GPUs the trial runs on has to be said; there are {}", names_of(open))};
  std::vector<GpuId> ids;
  for (const TuneGpu& gpu : open) ids.push_back(gpu.id);
  std::vector<TuneGpu> out;
  for (const int at : TRY(select_gpus(ids, text)))
    out.push_back(open[static_cast<std::size_t>(at)]);
  return out;
}

std::optional<std::vector<TuneGpu>> find_gpus(std::span<const TuneGpu> open,
                                              std::span<const std::string> uuids) {
  std::vector<TuneGpu> out;
  for (const std::string& uuid : uuids) {
    const auto at = std::find_if(open.begin(), open.end(),
                                 [&](const TuneGpu& gpu) { return gpu.id.uuid == uuid; });
    if (at == open.end()) return std::nullopt;
    out.push_back(*at);
  }
  return out;
}

std::vector<std::string> uuids_of(std::span<const TuneGpu> gpus) {
  std::vector<std::string> out;
  for (const TuneGpu& gpu : gpus) out.push_back(gpu.id.uuid);
  return out;
}

Result<Watts> max_power_of(std::span<const TuneGpu> gpus, const Selector& selector) {
  Watts out{};
  for (const TuneGpu& gpu : gpus) {
    if (!gpu.highest_limit && selector.kind == Selector::Kind::cost && selector.eta < 1)
      return Error{Errc::not_supported,
                   fmt::format("GPU {} has no power limit that can be set, by which a cost weighs "
                               "time: allowed are --knob clock with the selectors energy, time, "
                               "max-slowdown (of a job: derate tune job create --replace)",
                               gpu.id.index)};
    out += gpu.highest_limit.value_or(Watts{});
  }
  return out;
}

}  // namespace derate
