#include "base/log.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/printing.h"

namespace derate {

void tell_line(std::string_view program, std::string_view text) {
  const std::string line = log_text(fmt::format("{}: {}", program, text)) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace derate
