// EXPECT: cannot convert
#include "base/result.h"

derate::Result<int> parse();

#ifdef MISUSE
const bool went_well = parse();
#else
const bool went_well = parse().ok();
#endif
