// EXPECT: could not convert '1410' from 'int' to 'derate::Megahertz'
#include "base/units.h"

void lock(derate::Megahertz highest);
#ifdef MISUSE
void use() { lock(1410); }
#else
void use() { lock(derate::Megahertz(1410)); }
#endif
