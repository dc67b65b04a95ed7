// The files of /proc/PID: one reader, and what stands in them. Reading any of them may wait for the
// process: never for the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace derate {

// So much of a file is read. An environment may be megabytes, and its owner's to fill; the other
// files are short.
inline constexpr std::size_t kLongestProcFile = 32 << 10;

// The beginning of PROC/PID/FILE, without an entry that was cut off (of "environ"), and no more of
// it than until `enough` of what has been read. Empty when it is not there or may not be read.
std::optional<std::string> read_proc_file(
    const std::string& proc, std::int64_t pid, std::string_view file,
    const std::function<bool(std::string_view read)>& enough = [](std::string_view) {
      return false;
    });

struct ProcStat {
  std::string_view name;  // any character may be in it
  std::int64_t parent = 0, group = 0, session = 0;
  std::int64_t terminal = 0;  // that its session is on; 0: none
  std::uint64_t started = 0;  // clock ticks since the boot
};
// Of a text of "stat"; empty for any other text.
std::optional<ProcStat> parse_proc_stat(std::string_view text);

// The real user in a text of "status".
std::optional<std::uint32_t> real_user(std::string_view status);

// The value of NAME in a text of "environ", its first; empty when it is not there.
std::optional<std::string_view> variable_in(std::string_view environ, std::string_view name);

}  // namespace derate
