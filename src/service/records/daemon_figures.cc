#include "service/records/daemon_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <system_error>

#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

Duration duration_of(const timeval& time) {
  return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
}

std::optional<Duration> own_cpu() {
  rusage used{};
  if (::getrusage(RUSAGE_SELF, &used) != 0) return std::nullopt;
  return duration_of(used.ru_utime) + duration_of(used.ru_stime);
}

// The second number of statm, in pages.
std::optional<std::uint64_t> own_memory() {
  const auto text = read_file("/proc/self/statm");
  if (!text.ok()) return std::nullopt;
  const auto parts = split(*text, ' ');
  const auto pages = parts.size() > 1 ? parse_number<std::uint64_t>(parts[1]) : std::nullopt;
  const long page = ::sysconf(_SC_PAGESIZE);
  if (!pages || page <= 0) return std::nullopt;
  return *pages * static_cast<std::uint64_t>(page);
}

// Without the one that it is counted by.
std::optional<std::uint64_t> own_descriptors() {
  std::error_code wrong;
  std::filesystem::directory_iterator at("/proc/self/fd", wrong);
  std::uint64_t out = 0;
  for (; !wrong && at != std::filesystem::directory_iterator(); at.increment(wrong)) ++out;
  if (wrong || out == 0) return std::nullopt;
  return out - 1;
}

std::optional<std::uint64_t> descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return std::nullopt;
  return limit.rlim_cur;
}

}  // namespace

const DaemonFigures& DaemonMeter::figures() {
  const Instant now = clock_.now();
  figures_.cpu = own_cpu();
  figures_.started = started_;
  if (read_ && now - *read_ < kEvery) return figures_;
  read_ = now;
  figures_.resident_bytes = own_memory();
  figures_.open_descriptors = own_descriptors();
  figures_.most_descriptors = descriptor_limit();
  return figures_;
}

}  // namespace derate
