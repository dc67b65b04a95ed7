// Stops a run of a fuzz target that takes more CPU time than DERATE_FUZZ_CPU_S; without it there is
// no limit. libFuzzer measures by the clock: on a busy machine a short run takes long. The linker
// puts this in front of each target (--wrap).
#include <sys/time.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

extern "C" {
int __real_LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
int __wrap_LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
}

namespace {

void stop(int) {
  constexpr char kText[] = "CPU limit: this run has taken too long\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  std::abort();  // libFuzzer keeps the input
}

long read_limit() {
  const char* const text = std::getenv("DERATE_FUZZ_CPU_S");
  if (text == nullptr) return 0;
  std::signal(SIGPROF, stop);
  long seconds = 0;
  std::from_chars(text, text + std::strlen(text), seconds);
  return seconds;
}

void set_timer(long seconds) {
  const itimerval timer{{0, 0}, {seconds, 0}};
  ::setitimer(ITIMER_PROF, &timer, nullptr);
}

}  // namespace

int __wrap_LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const long limit_s = read_limit();
  if (limit_s > 0) set_timer(limit_s);
  const int out = __real_LLVMFuzzerTestOneInput(data, size);
  if (limit_s > 0) set_timer(0);
  return out;
}
