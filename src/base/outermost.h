// The outermost function of a program, or of a process of it: runs its body and lets no exception
// out.
#pragma once

#include <exception>
#include <new>
#include <string_view>
#include <system_error>

#include "base/exit_code.h"
#include "base/log.h"

namespace derate {

// Returns the body's exit code. An exception that a library threw and nothing caught is printed on
// standard error and becomes an exit code: that of a bug in Derate, or of io if the machine had no
// thread, process or memory left. It never aborts, which would leave a core file and no message.
template <class Body>
int run_outermost(std::string_view program, Body&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    print_line(program, "no memory is to be had: see `ulimit -v` and MemoryMax of the service");
    return exit_code_of(Errc::io);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      print_line(program,
                 "no thread is to be had: see `ulimit -u` and `-v`, and TasksMax of the service");
      return exit_code_of(Errc::io);
    }
    print_line(program, std::string("a bug in Derate, please report it: ") + error.what());
  } catch (const std::exception& error) {
    print_line(program, std::string("a bug in Derate, please report it: ") + error.what());
  } catch (...) {
    print_line(program, "a bug in Derate, please report it: an exception of no known kind");
  }
  return exit_code::kInternalError;
}

}  // namespace derate
