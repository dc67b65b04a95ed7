// The outermost function of a program, or of a process of it: runs its body and lets no exception
// out.
#pragma once

#include <exception>
#include <string_view>

#include "base/exit_code.h"
#include "base/log.h"

namespace derate {

// The body's exit code. An exception that a library threw and nobody caught, at the latest here, is
// a line on standard error and the code of a bug in Derate: never an abort, which would leave a
// core file and say nothing.
template <class Body>
int run_outermost(std::string_view program, Body&& body) {
  try {
    return body();
  } catch (const std::exception& error) {
    print_line(program, std::string("a bug in Derate, please report it: ") + error.what());
  } catch (...) {
    print_line(program, "a bug in Derate, please report it: an exception of no known kind");
  }
  return exit_code::kInternalError;
}

}  // namespace derate
