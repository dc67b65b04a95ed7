// A locale that writes 1,5 for 1.5, for as long as this lives: for streams of C++ always, for the C
// library where one can be made.
#pragma once

#include <stdlib.h>

#include <clocale>
#include <cstdlib>
#include <fstream>
#include <locale>
#include <string>

#include "base/test_folder.h"

namespace derate {

class CommaLocale {
 public:
  CommaLocale() : before_(std::locale::global(std::locale(std::locale(), new Comma))) {
    std::ofstream(folder_.path() + "/comma") << "LC_NUMERIC\ndecimal_point \"<U002C>\"\n"
                                                "thousands_sep \"\"\ngrouping -1\n"
                                                "END LC_NUMERIC\n";
    const std::string made = "localedef -c -i " + folder_.path() + "/comma -f ANSI_X3.4-1968 " +
                             folder_.path() + "/xx_XX >/dev/null 2>&1";
    const char* path = std::getenv("LOCPATH");
    if (path != nullptr) path_before_ = path;
    had_path_ = path != nullptr;
    // It ends with 1 for what is missing; whether it is there is seen by setting it.
    if (std::system(made.c_str()) == -1) return;
    ::setenv("LOCPATH", folder_.path().c_str(), 1);
    c_library_ = std::setlocale(LC_NUMERIC, "xx_XX") != nullptr;
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  ~CommaLocale() {
    if (had_path_)
      ::setenv("LOCPATH", path_before_.c_str(), 1);
    else
      ::unsetenv("LOCPATH");
    std::locale::global(before_);
    std::setlocale(LC_NUMERIC, "C");
  }
  bool of_c_library() const { return c_library_; }

 private:
  struct Comma final : std::numpunct<char> {
    char do_decimal_point() const override { return ','; }
    char do_thousands_sep() const override { return '.'; }
    std::string do_grouping() const override { return "\3"; }
  };
  Folder folder_;
  std::locale before_;
  std::string path_before_;
  bool had_path_ = false, c_library_ = false;
};

}  // namespace derate
