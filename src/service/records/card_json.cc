#include "service/records/card_json.h"

#include <algorithm>

#include "base/json.h"

namespace derate {
namespace {

template <class T>
void put_known(Json& json, const char* key, const std::optional<T>& value) {
  if (!value) return;
  if constexpr (requires { value->value(); })
    json[key] = value->value();
  else
    json[key] = *value;
}

void put_xids(Json& json, const XidLog& xids) {
  json["xids"] = xids.card.count + xids.programs.count;
  const auto xid = gravest(xids);
  if (!xid) return;
  json["xid"] = xid->number;
  if (const std::string text = xid_text(xid->number); !text.empty()) json["xid_text"] = text;
  json["xid_unix_seconds"] = seconds(xid->seen.time_since_epoch());
}

}  // namespace

Json card_json(const CardReading& card, const Activity& activity, Instant now) {
  Json out = Json::object();
  put_known(out, "memory_used_bytes", card.memory_used_bytes);
  put_known(out, "memory_total_bytes", card.memory_total_bytes);
  put_known(out, "pcie_generation", card.pcie_generation);
  put_known(out, "pcie_lanes", card.pcie_lanes);
  put_known(out, "pcie_most_generation", card.pcie_most_generation);
  put_known(out, "pcie_most_lanes", card.pcie_most_lanes);
  put_known(out, "pcie_tx_bytes_per_second", activity.pcie_tx);
  put_known(out, "pcie_rx_bytes_per_second", activity.pcie_rx);
  put_known(out, "fan_ratio", card.fan);
  put_known(out, "encoder_ratio", card.encoder);
  put_known(out, "decoder_ratio", card.decoder);
  put_known(out, "ecc_corrected_errors", card.ecc_corrected);
  put_known(out, "ecc_uncorrected_errors", card.ecc_uncorrected);
  if (card.xids) put_xids(out, *card.xids);
  if (out.empty()) return {};
  out["age_seconds"] = std::max(0.0, seconds(now - card.taken));
  return out;
}

}  // namespace derate
