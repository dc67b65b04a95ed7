// EXPECT: could not convert
#include "base/units.h"

using namespace derate::literals;

void limit(derate::Watts most);
#ifdef MISUSE
void use() { limit(1410_MHz); }
#else
void use() { limit(300_W); }
#endif
