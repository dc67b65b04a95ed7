// EXPECT: no match for 'operator>'
#include "base/units.h"

using namespace derate::literals;

#ifdef MISUSE
const bool over = 300_W > 250.0;
#else
const bool over = 300_W > 250_W;
#endif
