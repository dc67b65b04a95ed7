// EXPECT: ignoring returned value of type 'derate::Result<int>'
#include "base/result.h"

derate::Result<int> parse();

void use() {
#ifdef MISUSE
  parse();
#else
  const derate::Result<int> parsed = parse();
  if (!parsed.ok()) return;
#endif
}
