#include "attrib/baseline_splits.h"

#include "attrib/features.h"
#include "attrib/fixed_weight_split.h"

namespace derate {
namespace {

double equal(const TenantTick& tenant, const AttribTick&) { return tenant.context ? 1 : 0; }

double slices(const TenantTick& tenant, const AttribTick&) {
  return tenant.context ? clean_share(tenant.share) : 0;
}

double sm_share(const TenantTick& tenant, const AttribTick& tick) {
  switch (usable_signal(tenant)) {
    case SignalKind::instance_activity:
      return clean_share(tenant.share) * clean_share(tenant.activity.sm);
    case SignalKind::process_utilisation:
      return clean_share(tenant.sm_utilisation);
    case SignalKind::allocation:
      break;
  }
  return slices(tenant, tick);
}

double activity_ratio(const TenantTick& tenant, const AttribTick& tick) {
  switch (usable_signal(tenant)) {
    case SignalKind::instance_activity:
      return clean_share(tenant.activity.graphics ? tenant.activity.graphics : tenant.activity.sm);
    case SignalKind::process_utilisation:
      return clean_share(tenant.sm_utilisation);
    case SignalKind::allocation:
      break;
  }
  return equal(tenant, tick);
}

}  // namespace

std::unique_ptr<SplitMethod> make_equal_split(const BoardFacts& board) {
  return make_fixed_weight_split(board, equal);
}

std::unique_ptr<SplitMethod> make_slices_split(const BoardFacts& board) {
  return make_fixed_weight_split(board, slices);
}

std::unique_ptr<SplitMethod> make_sm_share_split(const BoardFacts& board) {
  return make_fixed_weight_split(board, sm_share);
}

std::unique_ptr<SplitMethod> make_activity_ratio_split(const BoardFacts& board) {
  return make_fixed_weight_split(board, activity_ratio);
}

}  // namespace derate
