#include "govern/saving_json.h"

#include <fmt/format.h>

#include "base/energy_text.h"
#include "base/json.h"
#include "base/text.h"

namespace derate {
namespace {

void put(Json& json, const std::string& what, const std::optional<ShareEstimate>& share) {
  if (!share) return;
  json[what + "_ratio"] = share->mean;
  json[what + "_low_ratio"] = share->low;
  json[what + "_high_ratio"] = share->high;
}

// Whole percents, a tenth where the two ends are closer than two of them.
std::string ends_text(const ShareEstimate& share) {
  const int digits = share.high - share.low < 0.02 ? 1 : 0;
  return fixed_text(100 * share.low, digits) + " and " + fixed_text(100 * share.high, digits);
}

}  // namespace

Json energy_saving_json(const Saving& saving, const std::string& method) {
  const auto share = energy_saving(saving);
  if (!share) return nullptr;
  Json out = {{"method", method},
              {"estimated", true},
              {"energy_joules", saving.energy.value()},
              {"energy_at_highest_joules", saving.energy_at_highest.value()}};
  put(out, "energy_saving", share);
  return out;
}

Json saving_json(const Saving& saving) {
  Json out = energy_saving_json(saving, kSavingMethod);
  if (out.is_null()) return out;
  out["time_seconds"] = seconds(saving.time);
  out["time_at_highest_seconds"] = seconds(saving.time_at_highest);
  put(out, "performance", performance(saving));
  return out;
}

std::string saving_text(const Saving& saving) {
  const auto share = energy_saving(saving);
  if (!share) return {};
  return fmt::format("about {} % ({} of {}, 90 % sure between {} %)",
                     fixed_text(100 * share->mean, 0),
                     kwh_text((saving.energy_at_highest - saving.energy).value()),
                     kwh_text(saving.energy_at_highest.value()), ends_text(*share));
}

std::string would_save_text(const Saving& saving) {
  constexpr double kFarApart = 0.2;
  const auto share = energy_saving(saving);
  if (!share || share->high - share->low <= kFarApart) return saving_text(saving);
  return fmt::format("between {} % of {}: a governed run will tell", ends_text(*share),
                     kwh_text(saving.energy_at_highest.value()));
}

std::string speed_text(const Saving& saving) {
  const auto share = performance(saving);
  if (!share) return {};
  return fmt::format("{:.0f} % of full (between {})", 100 * share->mean, ends_text(*share));
}

}  // namespace derate
