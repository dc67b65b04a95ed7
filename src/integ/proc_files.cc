#include "integ/proc_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/number.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {

std::optional<std::string> read_proc_file(
    const std::string& proc, std::int64_t pid, std::string_view file,
    const std::function<bool(std::string_view read)>& enough) {
  const std::string path = fmt::format("{}/{}/{}", proc, pid, file);
  const UniqueFd opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!opened.valid()) return std::nullopt;
  std::string out;
  char part[4096];
  // Files of /proc have no size of their own: read until the end.
  while (!enough(out)) {
    const ssize_t got =
        ::read(opened.get(), part, std::min(sizeof part, kLongestProcFile - out.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::nullopt;  // ESRCH: it ended meanwhile
    if (got == 0) break;
    out.append(part, static_cast<std::size_t>(got));
    if (out.size() < kLongestProcFile) continue;
    out.resize(out.rfind('\0') == std::string::npos ? out.size() : out.rfind('\0') + 1);
    break;
  }
  return out;
}

// proc(5): PID (NAME) STATE PPID PGRP SESSION ..., the 22nd being the start.
std::optional<ProcStat> parse_proc_stat(std::string_view text) {
  const auto open = text.find('('), close = text.rfind(')');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  const auto fields = split(text.substr(std::min(close + 2, text.size())), ' ');
  constexpr std::size_t kParent = 1, kGroup = 2, kSession = 3, kTerminal = 4, kStarted = 22 - 3;
  if (fields.size() <= kStarted) return std::nullopt;
  const auto started = parse_number<std::uint64_t>(fields[kStarted]);
  if (!started) return std::nullopt;
  const auto number = [&](std::size_t at) {
    return parse_number<std::int64_t>(fields[at]).value_or(0);
  };
  return ProcStat{text.substr(open + 1, close - open - 1),
                  number(kParent),
                  number(kGroup),
                  number(kSession),
                  number(kTerminal),
                  *started};
}

// "Uid:\tREAL\tEFFECTIVE...".
std::optional<std::uint32_t> real_user(std::string_view status) {
  for (const std::string_view line : split(status, '\n')) {
    const auto fields = split(line, '\t');
    if (fields.size() >= 2 && fields[0] == "Uid:") return parse_uid(fields[1]);
  }
  return std::nullopt;
}

// Without taking the text apart: it may be nothing but ends of entries.
std::optional<std::string_view> variable_in(std::string_view environ, std::string_view name) {
  for (std::size_t at = environ.find(name); at != std::string_view::npos;
       at = environ.find(name, at + 1)) {
    const bool begins = at == 0 || environ[at - 1] == '\0';
    if (!begins || !environ.substr(at + name.size()).starts_with('=')) continue;
    const auto value = environ.substr(at + name.size() + 1);
    return value.substr(0, value.find('\0'));
  }
  return std::nullopt;
}

}  // namespace derate
