// EXPECT: cannot convert
#include "base/result.h"

derate::Result<int> parse();

#ifdef MISUSE
int twice() { return 2 * TRY(parse()); }
#else
derate::Result<int> twice() { return 2 * TRY(parse()); }
#endif
