// EXPECT: cannot convert 'derate::Watts'
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const double watts = 300_W;
#else
const double watts = (300_W).value();
#endif
