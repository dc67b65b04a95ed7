// EXPECT: ignoring returned value of type 'derate::Result<void>'
#include "base/result.h"

derate::Result<void> restore();

void use() {
#ifdef MISUSE
  restore();
#else
  if (!restore().ok()) return;
#endif
}
