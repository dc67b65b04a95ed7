// EXPECT: no match for 'operator-'
#include "base/clock.h"

derate::Duration age(const derate::Clock& clock, derate::Instant since) {
#ifdef MISUSE
  return clock.wall_now() - since;
#else
  return clock.now() - since;
#endif
}
