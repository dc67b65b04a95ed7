#include "service/transport/signals.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <initializer_list>

namespace derate {
namespace {

std::atomic<int> g_stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "a handler of signals may take no lock");
volatile std::sig_atomic_t g_stop_was_sent = 0;
volatile std::sig_atomic_t g_signals = -1;  // an eventfd: counts all that have come

void wake_waiters() {
  const int number = errno;
  const std::uint64_t one = 1;
  if (g_signals >= 0) (void)!::write(g_signals, &one, sizeof one);
  errno = number;
}

void on_stop(int number, siginfo_t* info, void*) {
  wake_waiters();
  // A hang-up may mean something milder, so it does not replace a stop that nobody has seen yet.
  if (number == SIGHUP && g_stop_signal != 0) return;
  g_stop_signal = number;
  g_stop_was_sent = info != nullptr && info->si_code == SI_USER ? 1 : 0;
}
void on_child(int) { wake_waiters(); }

}  // namespace

void watch_signals() {
  if (g_signals < 0) g_signals = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction stop {};
  stop.sa_sigaction = on_stop;
  stop.sa_flags = SA_SIGINFO;  // without SA_RESTART: a sleep ends
  sigemptyset(&stop.sa_mask);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM})
    sigaction(number, &stop, nullptr);
  struct sigaction child {};
  child.sa_handler = on_child;
  sigemptyset(&child.sa_mask);
  sigaction(SIGCHLD, &child, nullptr);
  ignore_signals_of_writes();
}

void ignore_signals_of_writes() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
}

void open_standard_files() {
  int fd = 0;
  do fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

int stop_signal() { return g_stop_signal; }
bool stop_signal_was_sent() { return g_stop_was_sent != 0; }
void clear_stop_signal() { g_stop_signal = 0; }
int take_stop_signal() { return g_stop_signal.exchange(0); }

PollSource signal_source() {
  const auto forget = [] {
    std::uint64_t count = 0;
    (void)!::read(g_signals, &count, sizeof count);
  };
  return {g_signals, forget, true};
}

}  // namespace derate
