// Preloaded into a program with a guard and a worker, for tests/fault/fault_matrix.py.
//
// In the worker, the first process that the program forks, it counts the calls that change
// something outside it (files opened for writing, written, flushed, renamed, removed or locked,
// folders made, messages sent) and kills the worker with SIGKILL just before call number
// DERATE_KILL_AT. Each call counted is a line of DERATE_KILL_LOG: where the killed worker stood.
// While the file DERATE_KILL_CLOCK is there, the time of day is as many seconds on as it says, in
// every process of the program; monotonic time is never touched.
//
// The command of `derate run` is not concerned: the library takes itself out of the environment.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int g_is_worker, g_forks;
static long g_kill_at;
static atomic_long g_calls;
static char g_log[400], g_clock[400];

static void take(char *out, size_t size, const char *name) {
  const char *value = getenv(name);
  if (value != NULL) snprintf(out, size, "%s", value);
}

__attribute__((constructor)) static void begin(void) {
  char number[32] = "";
  take(number, sizeof number, "DERATE_KILL_AT");
  take(g_log, sizeof g_log, "DERATE_KILL_LOG");
  take(g_clock, sizeof g_clock, "DERATE_KILL_CLOCK");
  for (const char *c = number; *c >= '0' && *c <= '9'; ++c) g_kill_at = g_kill_at * 10 + *c - '0';
  unsetenv("LD_PRELOAD");
}

// The function of the library that comes after this one.
#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

// By system calls only: what is counted must not count itself.
static void note(long at, const char *call, const char *what) {
  char line[600];
  const int size = snprintf(line, sizeof line, "%ld %s %s\n", at, call, what);
  const int fd =
      (int)syscall(SYS_openat, AT_FDCWD, g_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  (void)!syscall(SYS_write, fd, line, (size_t)size);
  syscall(SYS_close, fd);
}

static void count(const char *call, const char *what) {
  if (!g_is_worker) return;
  const long at = atomic_fetch_add(&g_calls, 1) + 1;
  if (g_log[0] != '\0') note(at, call, what);
  if (at == g_kill_at) syscall(SYS_kill, getpid(), SIGKILL);
}

static void count_fd(const char *call, int fd) {
  if (!g_is_worker) return;
  char link[64], path[400] = "";
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  path[size > 0 ? size : 0] = '\0';
  if (fd > 2) count(call, path);
}

pid_t fork(void) {
  const pid_t child = NEXT(fork)();
  if (child == 0) g_is_worker = g_forks == 0 && !g_is_worker;
  ++g_forks;
  return child;
}

static void count_open(const char *path, int flags) {
  if ((flags & (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)) != 0) count("open", path);
}
#define MODE(flags)              \
  mode_t mode = 0;               \
  if (((flags)&O_CREAT) != 0) {  \
    va_list list;                \
    va_start(list, flags);       \
    mode = va_arg(list, mode_t); \
    va_end(list);                \
  }
int open(const char *path, int flags, ...) {
  MODE(flags)
  count_open(path, flags);
  return NEXT(open)(path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  MODE(flags)
  count_open(path, flags);
  return NEXT(open64)(path, flags, mode);
}
int openat(int folder, const char *path, int flags, ...) {
  MODE(flags)
  count_open(path, flags);
  return NEXT(openat)(folder, path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t size) {
  count_fd("write", fd);
  return NEXT(write)(fd, data, size);
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
  count_fd("pwrite", fd);
  return NEXT(pwrite)(fd, data, size, at);
}
int ftruncate(int fd, off_t size) {
  count_fd("ftruncate", fd);
  return NEXT(ftruncate)(fd, size);
}
int fsync(int fd) {
  count_fd("fsync", fd);
  return NEXT(fsync)(fd);
}
int flock(int fd, int how) {
  count_fd("flock", fd);
  return NEXT(flock)(fd, how);
}
int rename(const char *from, const char *to) {
  count("rename", to);
  return NEXT(rename)(from, to);
}
int unlink(const char *path) {
  count("unlink", path);
  return NEXT(unlink)(path);
}
int mkdir(const char *path, mode_t mode) {
  count("mkdir", path);
  return NEXT(mkdir)(path, mode);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
  count_fd("sendmsg", fd);
  return NEXT(sendmsg)(fd, message, flags);
}

int clock_gettime(clockid_t id, struct timespec *out) {
  const int result = NEXT(clock_gettime)(id, out);
  if (result != 0 || id != CLOCK_REALTIME || g_clock[0] == '\0') return result;
  char text[32] = "";
  const int fd = (int)syscall(SYS_openat, AT_FDCWD, g_clock, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return result;
  (void)!syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  long seconds = 0;
  for (const char *c = text + (text[0] == '-'); *c >= '0' && *c <= '9'; ++c)
    seconds = seconds * 10 + *c - '0';
  out->tv_sec += text[0] == '-' ? -seconds : seconds;
  return 0;
}
