#include "govern/schedule.h"

namespace derate {

bool take_due(Schedule& schedule, Instant now) {
  const Duration period = schedule.period;
  const Instant about = now + period / 10;
  if (schedule.next && about < *schedule.next) return false;
  if (period == Duration::zero())
    schedule.next = now;
  else if (!schedule.next)
    schedule.next = now + period;
  else
    *schedule.next += ((about - *schedule.next) / period + 1) * period;
  return true;
}

}  // namespace derate
