/* Tells Derate how far this program's work is, so that it need not guess from the GPU's counters.
 *
 *     #include "derate_beat.h"
 *     for (step = 1; step <= steps; ++step) {
 *       train(step);
 *       derate_beat((double)step);
 *     }
 *
 * One header, C99 or C++, Linux; elsewhere it does nothing. A call takes some microseconds, keeps
 * nothing open, never waits and never fails: where nobody listens nothing happens. Some beats a
 * second are enough; `done` only grows, in whatever unit, and one thread counts it.
 * docs/heartbeats.md of Derate has the message and who is believed. */
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
#include <sys/un.h>
#include <unistd.h>

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

/* 1 when somebody listens at FOLDER/NAME, or FOLDER where `name` is empty. */
static inline int derate_beat_send(const char* folder, const char* name, const char* text) {
  struct sockaddr_un address;
  int socket_, kept = errno, heard;
  if (folder == NULL || *folder == '\0' ||
      strlen(folder) + strlen(name) >= sizeof address.sun_path)
    return 0;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s%s", folder, name);
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (socket_ < 0) {
    errno = kept;
    return 0;
  }
  heard = sendto(socket_, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
                 (const struct sockaddr*)&address, sizeof address) >= 0;
  /* A daemon whose queue is full is there all the same. */
  heard = heard || (errno != ENOENT && errno != ECONNREFUSED);
  close(socket_);
  errno = kept;
  return heard;
}

/* Everything that can be said. `done`, `max_loss`: DERATE_BEAT_NONE where not said; `phase` (a word
 * of up to 63 printing characters) and `gpu` (index, UUID or PCI bus id): NULL. A phase and a
 * promise hold until others are said. */
static inline void derate_beat_say(double done, const char* phase, double max_loss,
                                   const char* gpu) {
  char text[480] = "", number[48];
  const char* run = getenv("DERATE_RUN_DIR");
  if (derate_beat_number(number, sizeof number, done))
    derate_beat_put(text, sizeof text, "done", number);
  if (phase != NULL && *phase != '\0') derate_beat_put(text, sizeof text, "phase", phase);
  if (derate_beat_number(number, sizeof number, max_loss))
    derate_beat_put(text, sizeof text, "max_loss", number);
  if (gpu != NULL && *gpu != '\0') derate_beat_put(text, sizeof text, "gpu", gpu);
  if (derate_beat_send(getenv("DERATE_BEAT_SOCKET"), "", text)) return;
  (void)derate_beat_send(run != NULL && *run != '\0' ? run : "/run/derate", "/beat.sock", text);
}

#else /* not Linux */

static inline void derate_beat_say(double done, const char* phase, double max_loss,
                                   const char* gpu) {
  (void)done, (void)phase, (void)max_loss, (void)gpu;
}

#endif

/* So much of the work is done. */
static inline void derate_beat(double done) {
  derate_beat_say(done, NULL, DERATE_BEAT_NONE, NULL);
}

#endif
