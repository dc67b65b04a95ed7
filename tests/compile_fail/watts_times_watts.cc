// EXPECT: no match for 'operator*'
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const auto product = 300_W * 2_W;
#else
const auto product = 300_W * 2;
#endif
