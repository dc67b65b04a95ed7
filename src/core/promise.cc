#include "core/promise.h"

#include <tuple>
#include <utility>
#include <vector>

namespace derate {

const PromiseKind kThroughput{
    "throughput", [](const Promise& a, const Promise& b) { return max_loss(a) < max_loss(b); }};

const PromiseKind kLatency{"latency", [](const Promise& a, const Promise& b) {
                             return std::tie(a.values[1], b.values[0]) <
                                    std::tie(b.values[1], a.values[0]);
                           }};

Promise throughput(Fraction max_loss, std::string origin, bool every_phase) {
  Promise out;
  out.values[0] = max_loss.value();
  out.origin = std::move(origin);
  out.every_phase = every_phase;
  return out;
}

Promise latency(std::string what, double quantile, double seconds, std::string origin) {
  Promise out{.kind = &kLatency, .values = {quantile, seconds}, .what = std::move(what)};
  out.origin = std::move(origin);
  return out;
}

std::optional<Promise> strictest(std::span<const Promise> promises, const PromiseKind& kind) {
  const Promise* least = nullptr;
  bool every_phase = false;
  for (const Promise& one : promises) {
    if (one.kind != &kind) continue;
    every_phase = every_phase || one.every_phase;
    if (least == nullptr || kind.is_stricter(one, *least) ||
        (!kind.is_stricter(*least, one) &&
         std::tie(one.origin, one.owner) < std::tie(least->origin, least->owner)))
      least = &one;
  }
  if (least == nullptr) return std::nullopt;
  Promise out = *least;
  out.every_phase = every_phase;
  return out;
}

std::optional<Promise> strictest_latency(std::span<const Promise> promises, std::string_view what) {
  std::vector<Promise> alike;
  for (const Promise& one : promises)
    if (one.kind == &kLatency && one.what == what) alike.push_back(one);
  return strictest(alike, kLatency);
}

}  // namespace derate
