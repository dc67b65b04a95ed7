// EXPECT: no match for 'operator+'
#include "base/units.h"

#ifdef MISUSE
const auto sum = derate::percent(50) + 0.1;
#else
const auto sum = derate::percent(50) + derate::Fraction(0.1);
#endif
