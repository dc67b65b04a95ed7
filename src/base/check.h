// CHECK(condition), an assertion of the programmer's assumptions; it stays on in release builds. A
// broken assumption ends the process, because going on would put a GPU's settings in the hands of a
// wrong program. The message is dropped if writing it would block: the guard and others react to
// the process's end.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "base/write_now.h"

#define CHECK_TEXT_OF(line) #line
#define CHECK_TEXT(line) CHECK_TEXT_OF(line)

#define CHECK(condition)                                                            \
  do {                                                                              \
    if (!(condition)) {                                                             \
      (void)::derate::write_now(                                                    \
          2, __FILE__ ":" CHECK_TEXT(__LINE__) ": CHECK failed: " #condition "\n"); \
      std::abort();                                                                 \
    }                                                                               \
  } while (false)
