/* Measures the energy of GPUs over named windows of a program; no root needed.
 *
 *     #include "derate_client.h"
 *     derate_client client = DERATE_CLIENT_INIT;
 *     derate_window window;
 *     if (derate_window_begin(&client, "epoch", NULL) != DERATE_CLIENT_OK) puts(client.error);
 *     train();
 *     if (derate_window_end(&client, "epoch", &window) == DERATE_CLIENT_OK)
 *       printf("%f s, %f J\n", window.seconds, window.joules);
 *     derate_client_close(&client);
 *
 * One header, C99 or C++, Linux; elsewhere nobody listens. derated answers, or `derate energy --
 * CMD` that started the program. A client is one connection, opened when first needed; one thread
 * uses it at a time. GPUs work on while a program goes on: synchronise them at both ends.
 * docs/energy.md of Derate says what the figures are. */
#ifndef DERATE_CLIENT_H
#define DERATE_CLIENT_H

#include <stddef.h>

/* For a figure that is not known; never 0. */
#define DERATE_CLIENT_NONE (-1.0)
#define DERATE_CLIENT_MOST_GPUS 64

enum derate_client_result {
  DERATE_CLIENT_OK = 0,
  DERATE_CLIENT_NOBODY = 1,  /* neither derated nor `derate energy` is there */
  DERATE_CLIENT_LOST = 2,    /* the connection ended, by a restart or a fork, and its windows */
  DERATE_CLIENT_REFUSED = 3, /* the request made no sense to who answered */
};

typedef struct derate_client {
  int socket; /* -1: none is open */
  long pid;   /* of the process that opened it */
  char error[256];
} derate_client;

#define DERATE_CLIENT_INIT \
  { -1, 0, "" }

typedef struct derate_gpu_energy {
  int index;         /* nvidia-smi's */
  double joules;     /* of the time that is covered; DERATE_CLIENT_NONE */
  double uncovered;  /* seconds that they are not of */
  double integrated; /* joules by power readings alone; DERATE_CLIENT_NONE */
} derate_gpu_energy;

typedef struct derate_window {
  double seconds;
  double joules; /* of all its GPUs; DERATE_CLIENT_NONE when one is not known */
  int gpus;
  derate_gpu_energy gpu[DERATE_CLIENT_MOST_GPUS];
} derate_window;

#ifdef __linux__

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static inline int derate_client_fail(derate_client* client, int result, const char* what) {
  snprintf(client->error, sizeof client->error, "%s", what);
  return result;
}

/* Ends the connection and its windows. */
static inline void derate_client_close(derate_client* client) {
  if (client->socket >= 0) close(client->socket);
  client->socket = -1;
}

static inline int derate_client_connect(derate_client* client, const char* folder,
                                        const char* name) {
  struct sockaddr_un address;
  struct timeval patience;
  if (folder == NULL || *folder == '\0' || strlen(folder) + strlen(name) >= sizeof address.sun_path)
    return 0;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path, sizeof address.sun_path, "%s%s", folder, name);
  patience.tv_sec = 30;
  patience.tv_usec = 0;
  client->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client->socket < 0) return 0;
  (void)setsockopt(client->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  client->pid = (long)getpid();
  if (connect(client->socket, (const struct sockaddr*)&address, sizeof address) == 0) return 1;
  derate_client_close(client);
  return 0;
}

/* Whether the connection is this process's own: a child's copy is its parent's. */
static inline int derate_client_open(derate_client* client) {
  if (client->socket >= 0 && client->pid != (long)getpid()) derate_client_close(client);
  return client->socket >= 0;
}

static inline int derate_client_reach(derate_client* client) {
  const char* run = getenv("DERATE_RUN_DIR");
  if (derate_client_open(client)) return DERATE_CLIENT_OK;
  if (derate_client_connect(client, getenv("DERATE_CLIENT_SOCKET"), "") ||
      derate_client_connect(client, run != NULL && *run != '\0' ? run : "/run/derate",
                            "/client.sock"))
    return DERATE_CLIENT_OK;
  return derate_client_fail(client, DERATE_CLIENT_NOBODY,
                            "nobody measures here (derated, or derate energy -- COMMAND)");
}

/* One line there and one back, without its end; 0 when the connection broke, and is closed. */
static inline int derate_client_exchange(derate_client* client, const char* line, char* answer,
                                         size_t size) {
  const size_t length = strlen(line);
  size_t sent = 0, got = 0;
  while (sent < length) {
    const ssize_t n = send(client->socket, line + sent, length - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += (size_t)n;
  }
  while (sent == length && got + 1 < size) {
    const ssize_t n = recv(client->socket, answer + got, size - 1 - got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += (size_t)n;
    if (answer[got - 1] == '\n') {
      answer[got - 1] = '\0';
      return 1;
    }
  }
  derate_client_close(client);
  return 0;
}

/* Appends a JSON text with its quotes; 0 when it does not fit or does not print. */
static inline int derate_client_put(char* out, size_t size, const char* text) {
  size_t at = strlen(out);
  if (at + 1 < size) out[at++] = '"';
  for (; *text != '\0'; ++text) {
    if ((unsigned char)*text < ' ') return 0;
    if (at + 4 >= size) return 0;
    if (*text == '"' || *text == '\\') out[at++] = '\\';
    out[at++] = *text;
  }
  out[at++] = '"';
  out[at] = '\0';
  return 1;
}

/* A number of JSON, which knows no decimal comma, whatever the program's locale. */
static inline double derate_client_number(const char* text) {
  double value = 0, scale = 1;
  int exponent = 0, sign = 1;
  const double minus = *text == '-' ? -1 : 1;
  if (*text == '-') ++text;
  if (*text < '0' || *text > '9') return DERATE_CLIENT_NONE;
  for (; *text >= '0' && *text <= '9'; ++text) value = value * 10 + (*text - '0');
  if (*text == '.')
    for (++text; *text >= '0' && *text <= '9'; ++text) value += (*text - '0') * (scale /= 10);
  if (*text == 'e' || *text == 'E') {
    ++text;
    if (*text == '-') sign = -1;
    if (*text == '-' || *text == '+') ++text;
    for (; *text >= '0' && *text <= '9' && exponent < 400; ++text)
      exponent = exponent * 10 + (*text - '0');
  }
  for (; exponent > 0; --exponent) value = sign > 0 ? value * 10 : value / 10;
  return minus * value;
}

/* Of "key":NUMBER in [text, end); the key comes with its quotes and colon. No name can hold it:
 * quotes in names are escaped. */
static inline double derate_client_find(const char* text, const char* end, const char* key) {
  const char* at = text == NULL ? NULL : strstr(text, key);
  if (at == NULL || (end != NULL && at >= end)) return DERATE_CLIENT_NONE;
  return derate_client_number(at + strlen(key));
}

static inline int derate_client_ask(derate_client* client, const char* line, char* answer,
                                    size_t size) {
  const char *error, *end;
  if (!derate_client_exchange(client, line, answer, size))
    return derate_client_fail(client, DERATE_CLIENT_LOST, "the connection has ended");
  if (strncmp(answer, "{\"ok\":true", 10) == 0) return DERATE_CLIENT_OK;
  error = strstr(answer, "\"error\":\"");
  if (error == NULL) return derate_client_fail(client, DERATE_CLIENT_REFUSED, answer);
  end = strstr(error, "\",\"exit_code\"");
  snprintf(client->error, sizeof client->error, "%.*s", end == NULL ? 200 : (int)(end - error - 9),
           error + 9);
  return DERATE_CLIENT_REFUSED;
}

/* Of GPUs by index, UUID or PCI bus id with commas between; NULL: all. */
static inline int derate_window_begin(derate_client* client, const char* name, const char* gpus) {
  char line[1024] = "{\"command\":\"window-begin\",\"name\":", answer[32768];
  const int was_open = derate_client_open(client);
  int result = derate_client_reach(client);
  int fits = derate_client_put(line, sizeof line - 32, name);
  if (result != DERATE_CLIENT_OK) return result;
  if (gpus != NULL) {
    strncat(line, ",\"gpus\":", 9);
    fits = fits && derate_client_put(line, sizeof line - 8, gpus);
  }
  if (!fits)
    return derate_client_fail(client, DERATE_CLIENT_REFUSED, "the name does not fit or print");
  strncat(line, "}\n", 3);
  result = derate_client_ask(client, line, answer, sizeof answer);
  if (result != DERATE_CLIENT_LOST || !was_open) return result;
  /* Who restarted is asked once more. */
  result = derate_client_reach(client);
  return result != DERATE_CLIENT_OK ? result
                                    : derate_client_ask(client, line, answer, sizeof answer);
}

/* Waits up to a tick (0.1 s) for the reading of the counter that makes it exact. */
static inline int derate_window_end(derate_client* client, const char* name, derate_window* out) {
  char line[1024] = "{\"command\":\"window-end\",\"name\":", answer[32768];
  const char* at;
  int result;
  memset(out, 0, sizeof *out);
  out->seconds = out->joules = DERATE_CLIENT_NONE;
  if (!derate_client_open(client))
    return derate_client_fail(client, DERATE_CLIENT_LOST,
                              "the connection of this window has ended (a restart, or a fork)");
  if (!derate_client_put(line, sizeof line - 8, name))
    return derate_client_fail(client, DERATE_CLIENT_REFUSED, "the name does not fit or print");
  strncat(line, "}\n", 3);
  result = derate_client_ask(client, line, answer, sizeof answer);
  if (result != DERATE_CLIENT_OK) return result;
  out->seconds = derate_client_find(answer, NULL, "\"time_seconds\":");
  out->joules = derate_client_find(answer, NULL, "\"energy_joules\":");
  at = strstr(answer, "\"index\":");
  while (at != NULL && out->gpus < DERATE_CLIENT_MOST_GPUS) {
    const char* next = strstr(at + 1, "\"index\":");
    derate_gpu_energy* gpu = &out->gpu[out->gpus++];
    gpu->index = (int)derate_client_find(at, next, "\"index\":");
    gpu->joules = derate_client_find(at, next, "\"energy_joules\":");
    gpu->uncovered = derate_client_find(at, next, "\"uncovered_seconds\":");
    gpu->integrated = derate_client_find(at, next, "\"integrated_joules\":");
    at = next;
  }
  return DERATE_CLIENT_OK;
}

#else /* not Linux */

#include <string.h>

static inline void derate_client_close(derate_client* client) { (void)client; }
static inline int derate_window_begin(derate_client* client, const char* name, const char* gpus) {
  (void)name, (void)gpus;
  strncpy(client->error, "nobody measures here", sizeof client->error - 1);
  return DERATE_CLIENT_NOBODY;
}
static inline int derate_window_end(derate_client* client, const char* name, derate_window* out) {
  (void)name;
  memset(out, 0, sizeof *out);
  out->seconds = out->joules = DERATE_CLIENT_NONE;
  strncpy(client->error, "nobody measures here", sizeof client->error - 1);
  return DERATE_CLIENT_NOBODY;
}

#endif

#endif
