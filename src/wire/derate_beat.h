/* Heartbeats of a program: reports to Derate how far its work is, so that Derate need not guess
 * from the GPU's counters.
 *
 *     #include "derate_beat.h"
 *     for (step = 1; step <= steps; ++step) {
 *       train(step);
 *       derate_beat((double)step);
 *     }
 *
 * The header is C99 or C++, for Linux; elsewhere it does nothing. A call takes some microseconds,
 * keeps nothing open, never waits and never fails: if nobody listens, nothing happens. If a user
 * other than root created the socket, nothing is sent, which is reported once on standard error.
 * Some beats a second are enough; `done` only grows, in any unit, and one thread counts it. The
 * first beat, and one each minute, also reports the environment's promise (DERATE_DELTA) and its
 * batch job. docs/heartbeats.md of Derate has the message and the rules for its senders. */
#ifndef DERATE_BEAT_H
#define DERATE_BEAT_H

/* For a number that is not said. */
#define DERATE_BEAT_NONE (-1.0)

#ifdef __linux__

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if defined(__STRICT_ANSI__) && !defined(__cplusplus)
extern int lstat(const char*, struct stat*); /* which -std=c99 hides */
#endif

/* A number of the message, which knows no decimal comma, whatever the program's locale: six places.
 */
static inline int derate_beat_number(char* out, size_t size, double value) {
  unsigned long long whole, millionths;
  if (!(value >= 0.0 && value <= 1e18)) return 0;
  whole = (unsigned long long)value;
  millionths = (unsigned long long)((value - (double)whole) * 1e6 + 0.5);
  if (millionths >= 1000000ULL) {
    whole += 1ULL;
    millionths -= 1000000ULL;
  }
  return snprintf(out, size, "%llu.%06llu", whole, millionths) < (int)size;
}

/* Appends KEY=VALUE; what does not fit is left out. */
static inline void derate_beat_put(char* text, size_t size, const char* key, const char* value) {
  const size_t length = strlen(text);
  const int added =
      snprintf(text + length, size - length, "%s%s=%s", length > 0 ? " " : "", key, value);
  if (added < 0 || (size_t)added >= size - length) text[length] = '\0';
}

/* Why a beat to this path might reach somebody else, or NULL: the socket and its folder are to be
 * root's or our own, and nobody else may be able to exchange anything on the way to it. The kernel
 * does not tell who reads a datagram socket. */
static inline const char* derate_beat_doubt(const char* path) {
  char part[sizeof(((struct sockaddr_un*)0)->sun_path)];
  struct stat folder, found;
  const unsigned me = (unsigned)geteuid();
  size_t begin, end;
  memset(&folder, 0, sizeof folder);
  if (lstat(path, &found) != 0) return NULL;
  if ((found.st_mode & 0170000) == 0120000) return "it is a link";
  for (begin = 0; path[begin] != '\0'; begin = end) {
    begin += strspn(path + begin, "/");
    end = begin + strcspn(path + begin, "/");
    memcpy(part, path, begin);
    part[begin] = '\0';
    if (stat(begin > 0 ? part : ".", &folder) != 0) return NULL;
    memcpy(part, path, end);
    part[end] = '\0';
    if (lstat(part, &found) != 0) return NULL;
    if ((folder.st_mode & 0002) == 0) continue;
    if ((folder.st_mode & 01000) == 0) return "everybody may exchange what lies there";
    if (found.st_uid != 0 && found.st_uid != me)
      return path[end] == '\0' ? "it belongs to another user"
                               : "a folder on the way belongs to another user";
  }
  if (found.st_uid != 0 && found.st_uid != me) return "it belongs to another user";
  return folder.st_uid == 0 || folder.st_uid == me ? NULL
                                                   : "a folder on the way belongs to another user";
}

/* 1 when somebody listens at FOLDER/NAME, or FOLDER where `name` is empty. */
static inline int derate_beat_send(const char* folder, const char* name, const char* text) {
  static int told = 0;
  struct sockaddr_un address;
  const char* doubt;
  int socket_, kept = errno, heard;
  if (folder == NULL || *folder == '\0' || strlen(folder) + strlen(name) >= sizeof address.sun_path)
    return 0;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, folder, strlen(folder));
  memcpy(address.sun_path + strlen(folder), name, strlen(name));
  doubt = derate_beat_doubt(address.sun_path);
  if (doubt != NULL) {
    if (!told) fprintf(stderr, "derate: no beat is sent to '%s': %s\n", address.sun_path, doubt);
    told = 1;
    errno = kept;
    return 0;
  }
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) {
    errno = kept;
    return 0;
  }
  heard = sendto(socket_, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                 (const struct sockaddr*)&address, sizeof address) >= 0;
  /* A daemon whose queue is full is there all the same. A socket of another user is not for us. */
  heard = heard || (errno != ENOENT && errno != ECONNREFUSED && errno != EACCES);
  close(socket_);
  errno = kept;
  return heard;
}

/* Sends to the first that listens: `derate run` that started the program, then derated's socket for
 * this user alone, whose queue no other user can fill, then derated's socket for all users. */
static inline void derate_beat_tell(const char* text) {
  const char* run = getenv("DERATE_RUN_DIR");
  char own[40];
  if (run == NULL || *run == '\0') run = "/run/derate";
  if (derate_beat_send(getenv("DERATE_BEAT_SOCKET"), "", text)) return;
  snprintf(own, sizeof own, "/beats/%lu.sock", (unsigned long)geteuid());
  if (derate_beat_send(run, own, text)) return;
  (void)derate_beat_send(run, "/beat.sock", text);
}

/* Appends KEY=VARIABLE of the environment where it is a word of characters from `first` to `last`,
 * as the message can have it. */
static inline void derate_beat_put_variable(char* text, size_t size, const char* key,
                                            const char* variable, char first, char last) {
  const char* value = getenv(variable);
  size_t length = 0;
  if (value == NULL) return;
  while (value[length] >= first && value[length] <= last) ++length;
  if (length > 0 && length <= 32 && value[length] == '\0') derate_beat_put(text, size, key, value);
}

/* What this program's environment says of its work (DERATE_DELTA, SLURM_JOB_ID): the daemon may not
 * be allowed to read it. At the first call, each minute, since a daemon may have been started anew,
 * and in a child of its own. */
static inline void derate_beat_announce(void) {
  static long said_at, said_by; /* whoever comes second says it once more: no harm */
  const long now = (long)time(NULL), self = (long)getpid();
  const long before = __atomic_load_n(&said_at, __ATOMIC_RELAXED);
  char text[128] = "";
  if (__atomic_load_n(&said_by, __ATOMIC_RELAXED) == self && now >= before && now - before < 60)
    return;
  __atomic_store_n(&said_at, now, __ATOMIC_RELAXED);
  __atomic_store_n(&said_by, self, __ATOMIC_RELAXED);
  derate_beat_put_variable(text, sizeof text, "delta", "DERATE_DELTA", '!', '~');
  derate_beat_put_variable(text, sizeof text, "job", "SLURM_JOB_ID", '0', '9');
  if (*text != '\0') derate_beat_tell(text);
}

/* Everything that can be said. `done`, `max_loss`: DERATE_BEAT_NONE where not said; `phase` (a word
 * of up to 63 printing characters) and `gpu` (index, UUID or PCI bus id): NULL. A phase and a
 * promise hold until others are said. */
static inline void derate_beat_say(double done, const char* phase, double max_loss,
                                   const char* gpu) {
  char text[480] = "", number[48];
  derate_beat_announce();
  if (derate_beat_number(number, sizeof number, done))
    derate_beat_put(text, sizeof text, "done", number);
  if (phase != NULL && *phase != '\0') derate_beat_put(text, sizeof text, "phase", phase);
  if (derate_beat_number(number, sizeof number, max_loss))
    derate_beat_put(text, sizeof text, "max_loss", number);
  if (gpu != NULL && *gpu != '\0') derate_beat_put(text, sizeof text, "gpu", gpu);
  derate_beat_tell(text);
}

#else /* not Linux */

static inline void derate_beat_say(double done, const char* phase, double max_loss,
                                   const char* gpu) {
  (void)done, (void)phase, (void)max_loss, (void)gpu;
}

#endif

/* So much of the work is done. */
static inline void derate_beat(double done) { derate_beat_say(done, NULL, DERATE_BEAT_NONE, NULL); }

#endif
