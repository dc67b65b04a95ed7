/* The few functions of the C library that this library uses, its own and seen by nobody else. Those
 * of a program may be its own of the same name, or those of a sanitizer that is only beginning, and
 * some of the C library's end a thread that is to be cancelled. Errors are -1; errno is not
 * touched.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hand_over.h"

/* --- text and bytes (compiled so that no loop becomes a call of itself) ---------------------- */

size_t strlen(const char* text) {
  size_t out = 0;
  while (text[out] != '\0') ++out;
  return out;
}

int strcmp(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) ++a, ++b;
  return (unsigned char)*a - (unsigned char)*b;
}

char* strstr(const char* text, const char* part) {
  for (;; ++text) {
    size_t same = 0;
    while (part[same] != '\0' && text[same] == part[same]) ++same;
    if (part[same] == '\0') return (char*)text;
    if (*text == '\0') return NULL;
  }
}

static int has(const char* set, char c) {
  for (; *set != '\0'; ++set)
    if (*set == c) return 1;
  return 0;
}

size_t strspn(const char* text, const char* set) {
  size_t out = 0;
  while (text[out] != '\0' && has(set, text[out])) ++out;
  return out;
}

size_t strcspn(const char* text, const char* set) {
  size_t out = 0;
  while (text[out] != '\0' && !has(set, text[out])) ++out;
  return out;
}

void* memcpy(void* restrict to, const void* restrict from, size_t size) {
  for (size_t i = 0; i < size; ++i) ((char*)to)[i] = ((const char*)from)[i];
  return to;
}

void* memset(void* to, int byte, size_t size) {
  for (size_t i = 0; i < size; ++i) ((char*)to)[i] = (char)byte;
  return to;
}

/* --- system calls ---------------------------------------------------------------------------- */

static long call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
  long out;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall"
                   : "=a"(out)
                   : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return out;
#else
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc 0"
                   : "+r"(x0)
                   : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                   : "memory");
  return x0;
#endif
}

static long or_error(long result) { return result < 0 && result > -4096 ? -1 : result; }

long syscall(long number, ...) {
  va_list more;
  va_start(more, number);
  const long a = va_arg(more, long), b = va_arg(more, long), c = va_arg(more, long);
  const long d = va_arg(more, long);
  va_end(more);
  return or_error(call(number, a, b, c, d, 0, 0));
}

int close(int file) { return (int)or_error(call(SYS_close, file, 0, 0, 0, 0, 0)); }
int stat(const char* restrict path, struct stat* restrict out) {
  return (int)or_error(call(SYS_newfstatat, AT_FDCWD, (long)path, (long)out, 0, 0, 0));
}
int lstat(const char* restrict path, struct stat* restrict out) {
  return (int)or_error(
      call(SYS_newfstatat, AT_FDCWD, (long)path, (long)out, AT_SYMLINK_NOFOLLOW, 0, 0));
}
int fstat(int file, struct stat* out) {
  return (int)or_error(call(SYS_fstat, file, (long)out, 0, 0, 0, 0));
}
pid_t getpid(void) { return (pid_t)call(SYS_getpid, 0, 0, 0, 0, 0, 0); }
uid_t geteuid(void) { return (uid_t)call(SYS_geteuid, 0, 0, 0, 0, 0, 0); }
uid_t getuid(void) { return (uid_t)call(SYS_getuid, 0, 0, 0, 0, 0, 0); }
int ftruncate(int file, off_t size) {
  return (int)or_error(call(SYS_ftruncate, file, size, 0, 0, 0, 0));
}
int fcntl(int file, int what, ...) {
  va_list more;
  va_start(more, what);
  const long value = va_arg(more, long);
  va_end(more);
  return (int)or_error(call(SYS_fcntl, file, what, value, 0, 0, 0));
}
void* mmap(void* where, size_t size, int may, int how, int file, off_t from) {
  return (void*)or_error(
      call(SYS_mmap, (long)where, (long)size, may, how, file, from)); /* MAP_FAILED is -1 */
}
int munmap(void* where, size_t size) {
  return (int)or_error(call(SYS_munmap, (long)where, (long)size, 0, 0, 0, 0));
}
int mprotect(void* where, size_t size, int may) {
  return (int)or_error(call(SYS_mprotect, (long)where, (long)size, may, 0, 0, 0));
}
int madvise(void* where, size_t size, int what) {
  return (int)or_error(call(SYS_madvise, (long)where, (long)size, what, 0, 0, 0));
}
int socket(int family, int type, int protocol) {
  return (int)or_error(call(SYS_socket, family, type, protocol, 0, 0, 0));
}
long derate_send_message(int file, const void* message, int flags) {
  const long sent = call(SYS_sendmsg, file, (long)message, flags, 0, 0, 0);
  return sent < 0 ? sent : 0;
}
long derate_seconds_now(int (*clock)(int clock, void* time)) {
  struct timespec now = {0, 0};
  if (clock == NULL || clock(CLOCK_REALTIME_COARSE, &now) != 0)
    (void)call(SYS_clock_gettime, CLOCK_REALTIME_COARSE, (long)&now, 0, 0, 0, 0);
  return now.tv_sec;
}

extern char** environ __attribute__((weak));

char* getenv(const char* name) {
  const size_t length = strlen(name);
  char** at = &environ == NULL ? NULL : environ;
  for (; at != NULL && *at != NULL; ++at) {
    size_t i = 0;
    while (i < length && (*at)[i] == name[i]) ++i;
    if (i == length && (*at)[i] == '=') return *at + length + 1;
  }
  return NULL;
}
