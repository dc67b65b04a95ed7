// CHECK(condition), an assertion of the programmer's assumptions; it stays on in release builds. A
// broken assumption ends the process, because going on would put a GPU's settings in the hands of a
// wrong program.
#pragma once

#include <cstdio>
#include <cstdlib>

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: CHECK failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
