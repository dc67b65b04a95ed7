// EXPECT: cannot convert 'derate::Result<int>' to 'int'
#include "base/result.h"

derate::Result<int> parse();

#ifdef MISUSE
int use() { return parse(); }
#else
int use() { return parse().ok() ? 1 : 0; }
#endif
