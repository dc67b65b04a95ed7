#include "service/records/tenant_seconds.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "attrib/split_saving.h"
#include "govern/saving_json.h"

namespace derate {
namespace {

constexpr Duration kWhole = std::chrono::seconds(1);

using Fields = std::vector<std::pair<HistoryField, std::int64_t>>;

// What each tenant has of a tick, in the order of the split's.
std::vector<Fields> fields_of(const AttributedTick& tick, const Split& split) {
  std::vector<Fields> out;
  for (const TenantEnergy& energy : split.tenants) {
    Fields& fields = out.emplace_back();
    fields.emplace_back(HistoryField::energy_mj, energy.total_mj());
    if (const auto sd = sums_of(energy, split.length).deviation_mj())
      fields.emplace_back(HistoryField::energy_sd_mj, *sd);
  }
  const auto saved = tick.savings.find(kSavingMethod);
  if (saved == tick.savings.end()) return out;
  const SavingSplit savings = split_saving(saved->second, split);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const SavingSums& sums = savings.tenants[i];
    out[i].emplace_back(HistoryField::saved_of_mj, sums.energy_mj);
    out[i].emplace_back(HistoryField::saved_at_highest_mj, sums.at_highest_mj);
    out[i].emplace_back(HistoryField::saved_sd_mj, sums.sd_mj);
  }
  return out;
}

// Whole parts of it, one a piece; what is taken back is divided as what is given.
void divide(HistoryField field, std::int64_t whole, const std::vector<double>& by,
            std::vector<HistoryPoint>& to) {
  const auto parts = apportion(std::abs(whole), by);
  for (std::size_t i = 0; i < parts.size(); ++i) to[i][field] = whole < 0 ? -parts[i] : parts[i];
}

std::int64_t whole_ms(WallTime time) {
  return std::chrono::round<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

std::vector<TenantSeconds::Piece> TenantSeconds::pieces_of(WallTime begin, WallTime end,
                                                           const PowerOf& power_of) {
  std::vector<Piece> out;
  bool known = true;
  for (WallTime at = begin; at < end;) {
    const WallTime second = std::chrono::floor<std::chrono::seconds>(at);
    const WallTime to = std::min<WallTime>(end, second + kWhole);
    const auto power = power_of(second);
    known = known && power && *power > Watts(0);
    out.push_back({second, to - at, power ? power->value() * seconds(to - at) : 0});
    at = to;
  }
  for (Piece& piece : out)
    if (!known) piece.weight = seconds(piece.length);
  return out;
}

SecondPart TenantSeconds::part(const std::string& tenant, Open open) const {
  return {second_,
          {.kind = HistoryKind::tenant, .tenant = tenant, .labels = std::move(open.labels)},
          open.point};
}

void TenantSeconds::add(const std::string& tenant, const TenantLabels& labels,
                        const HistoryPoint& point, std::vector<SecondPart>& out) {
  const auto [at, fresh] = open_.try_emplace(tenant, Open{labels, {}});
  if (at->second.labels != labels)
    out.push_back(part(tenant, std::exchange(at->second, {labels, {}})));
  at->second.point.fold(point);
}

void TenantSeconds::cut(std::vector<SecondPart>& out) {
  for (auto& [tenant, open] : open_) out.push_back(part(tenant, std::move(open)));
  open_.clear();
}

void TenantSeconds::take(const AttributedTick& tick, const PowerOf& power_of,
                         std::vector<SecondPart>& out) {
  if (!tick.tick.split || tick.tick.split->tenants.empty()) return;
  const Split& split = *tick.tick.split;
  if (split.length <= Duration::zero() || split.length > kLongestTick) return;
  const WallTime begin = tick.end - split.length;
  const auto pieces = pieces_of(begin, tick.end, power_of);
  std::vector<double> weights, times;
  for (const Piece& piece : pieces) {
    weights.push_back(piece.weight);
    times.push_back(seconds(piece.length));
  }
  const auto fields = fields_of(tick, split);
  std::vector<std::vector<HistoryPoint>> points;  // by tenant and piece
  for (const Fields& of_tenant : fields) {
    auto& mine = points.emplace_back(pieces.size());
    for (const auto& [field, whole] : of_tenant) divide(field, whole, weights, mine);
    divide(HistoryField::covered_ms, whole_ms(tick.end) - whole_ms(begin), times, mine);
  }
  for (std::size_t at = 0; at < pieces.size(); ++at) {
    if (pieces[at].second != second_) cut(out);
    second_ = pieces[at].second;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::string& key = split.tenants[i].key;
      add(key, tick.gpu.labels(key), points[i][at], out);
    }
  }
  if (second_ + kWhole <= tick.end) cut(out);
}

}  // namespace derate
