// EXPECT: no match for 'operator<'
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const bool less = 300_W < 300_J;
#else
const bool less = 300_W < 301_W;
#endif
