// EXPECT: no match for 'operator+'
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const auto sum = 300_W + 1410_MHz;
#else
const auto sum = 300_W + 1410_W;
#endif
