/* A client of derated in one C header: energy of GPUs over windows, trials of recurring jobs. */
/* clang-format off: the example is to be read as it stands. */
/* Measures the energy of GPUs over named windows of a program, and runs jobs that recur; no root
 * needed.
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
 *     derate_trial trial;
 *     if (derate_trial_begin(&client, "bert", NULL, &trial) != DERATE_CLIENT_OK)
 *       return puts(client.error);
 *     while (!trial.should_stop && train_an_epoch(trial.batch_size))
 *       derate_trial_report(&client, &trial, ++epochs, steps, metric());
 *     derate_trial_end(&client, &trial, DERATE_TRIAL_MISSED);
 *
 * One header, C99 or C++, Linux; elsewhere nobody listens. derated answers; windows are also
 * measured by `derate energy -- CMD` that started the program. Whoever else listens than root or
 * the program's own user is not asked. A client is one connection, opened when first needed; one
 * thread uses it at a time. GPUs work on while a program goes on: synchronise them at both ends of
 * a window. docs/energy.md of Derate says what the figures of windows are, docs/tune-jobs.md those
 * of trials. */
/* clang-format on */
#ifndef DERATE_CLIENT_H
#define DERATE_CLIENT_H

#include <stddef.h>

/* For a figure that is not known; never 0. */
#define DERATE_CLIENT_NONE (-1.0)
#define DERATE_CLIENT_MOST_GPUS 64

enum derate_client_result {
  DERATE_CLIENT_OK = 0,
  DERATE_CLIENT_NOBODY = 1,  /* neither derated nor `derate energy` is there, or to be believed */
  DERATE_CLIENT_LOST = 2,    /* the connection ended, and its windows: by a restart, a fork, or
                                because no answer came for 30 s */
  DERATE_CLIENT_REFUSED = 3, /* the request made no sense to who answered */
};

typedef struct derate_client {
  int socket; /* -1: none is open */
  long pid;   /* of the process that opened it */
  char error[256];
  char code[32]; /* of a refusal, its kind: "busy", "not_found" (docs/control.md); else empty */
} derate_client;

#define DERATE_CLIENT_INIT \
  { -1, 0, "", "" }

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

/* How a trial ends that was not told to stop; one that was ends as its verdict says. */
#define DERATE_TRIAL_MISSED "missed"         /* by itself, without the target */
#define DERATE_TRIAL_INFEASIBLE "infeasible" /* a GPU's memory is too small for the batch size */
#define DERATE_TRIAL_LOST "lost"             /* it says nothing of the batch size */

typedef struct derate_trial {
  long long id;
  char token[64];
  int batch_size;  /* 0: of a trial of no job */
  int should_stop; /* from a report on: 1 */
  int may_retry;   /* at its end: another try of the same run may follow */
  char state[16];  /* running, reached, missed, stopped, infeasible or lost */
  double cost;     /* joules; DERATE_CLIENT_NONE where not known */
  double joules;
  double seconds;
  double lease; /* seconds in which something has to be heard of it */
} derate_trial;

#ifdef __linux__

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERCRED
#include <asm/socket.h> /* which -std=c99 hides */
#endif

static inline int derate_client_fail(derate_client* client, int result, const char* what) {
  snprintf(client->error, sizeof client->error, "%.*s", (int)sizeof client->error - 1, what);
  client->code[0] = '\0';
  return result;
}

/* Who listens there, as the kernel tells: root and our own user are believed. */
static inline int derate_client_believes(derate_client* client, const char* path) {
  struct {
    int pid;
    unsigned uid, gid;
  } who;
  socklen_t size = sizeof who;
  if (getsockopt(client->socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return 0;
  if (who.uid == 0 || who.uid == (unsigned)geteuid()) return 1;
  snprintf(client->error, sizeof client->error,
           "'%s' is not asked: user %u listens there, who is neither root nor user %u", path,
           who.uid, (unsigned)geteuid());
  return 0;
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
  memcpy(address.sun_path, folder, strlen(folder));
  memcpy(address.sun_path + strlen(folder), name, strlen(name));
  patience.tv_sec = 30;
  patience.tv_usec = 0;
  client->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (client->socket < 0) return 0;
  (void)setsockopt(client->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  client->pid = (long)getpid();
  if (connect(client->socket, (const struct sockaddr*)&address, sizeof address) == 0 &&
      derate_client_believes(client, address.sun_path))
    return 1;
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
  client->error[0] = '\0';
  if (derate_client_connect(client, getenv("DERATE_CLIENT_SOCKET"), "") ||
      derate_client_connect(client, run != NULL && *run != '\0' ? run : "/run/derate",
                            "/client.sock"))
    return DERATE_CLIENT_OK;
  if (client->error[0] != '\0') return DERATE_CLIENT_NOBODY; /* who is not believed is told of */
  return derate_client_fail(client, DERATE_CLIENT_NOBODY,
                            "nobody measures here (derated, or derate energy -- COMMAND)");
}

/* One line there and one back, without its end. What fails closes the connection: 0 when it broke,
 * -1 when no answer came in time. */
static inline int derate_client_exchange(derate_client* client, const char* line, char* answer,
                                         size_t size) {
  const size_t length = strlen(line);
  size_t sent = 0, got = 0;
  ssize_t n = 1;
  int silent;
  while (sent < length) {
    n = send(client->socket, line + sent, length - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += (size_t)n;
  }
  while (sent == length && got + 1 < size) {
    n = recv(client->socket, answer + got, size - 1 - got, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    got += (size_t)n;
    if (answer[got - 1] == '\n') {
      answer[got - 1] = '\0';
      return 1;
    }
  }
  silent = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  derate_client_close(client);
  return silent ? -1 : 0;
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

/* The text of "key":"TEXT" without escapes, as states, tokens and job names are; else empty. */
static inline void derate_client_word(const char* text, const char* key, char* out, size_t size) {
  const char* at = strstr(text, key);
  size_t length = 0;
  *out = '\0';
  if (at == NULL) return;
  at += strlen(key);
  while (at[length] != '\0' && at[length] != '"' && at[length] != '\\') ++length;
  if (at[length] != '"' || length >= size) return;
  memcpy(out, at, length);
  out[length] = '\0';
}

/* `again`: who has restarted is asked once more; who does not answer may still do what it was
 * asked, and is not. */
static inline int derate_client_ask(derate_client* client, const char* line, int again,
                                    char* answer, size_t size) {
  const char *error, *end;
  int heard = derate_client_exchange(client, line, answer, size);
  if (heard == 0 && again) {
    const int result = derate_client_reach(client);
    if (result != DERATE_CLIENT_OK) return result;
    heard = derate_client_exchange(client, line, answer, size);
  }
  if (heard != 1)
    return derate_client_fail(client, DERATE_CLIENT_LOST,
                              heard == 0 ? "the connection has ended" : "no answer for 30 s");
  if (strncmp(answer, "{\"ok\":true", 10) == 0) return DERATE_CLIENT_OK;
  derate_client_word(answer, "\"code\":\"", client->code, sizeof client->code);
  error = strstr(answer, "\"error\":\"");
  if (error == NULL) return derate_client_fail(client, DERATE_CLIENT_REFUSED, answer);
  end = strstr(error, "\",\"exit_code\"");
  snprintf(client->error, sizeof client->error, "%.*s", end == NULL ? 200 : (int)(end - error - 9),
           error + 9);
  return DERATE_CLIENT_REFUSED;
}

/* Ends a line with what something is called and its GPUs; NULL for none. */
static inline int derate_client_put_names(derate_client* client, char* line, size_t size,
                                          const char* name, const char* gpus) {
  int fits = derate_client_put(line, size - 32, name);
  if (gpus != NULL) {
    strncat(line, ",\"gpus\":", 9);
    fits = fits && derate_client_put(line, size - 8, gpus);
  }
  if (!fits)
    return derate_client_fail(client, DERATE_CLIENT_REFUSED, "the name does not fit or print");
  strncat(line, "}\n", 3);
  return DERATE_CLIENT_OK;
}

/* GPUs by UUID or PCI bus id, separated by commas; NULL: all that are measured. A number is an
 * index of the measuring process: in a Slurm job or a container, or if CUDA orders GPUs otherwise,
 * it can be another GPU than the program's. cudaDeviceGetPCIBusId() gives names that mean one GPU.
 */
static inline int derate_window_begin(derate_client* client, const char* name, const char* gpus) {
  char line[1024] = "{\"command\":\"window-begin\",\"name\":", answer[32768];
  const int was_open = derate_client_open(client);
  int result = derate_client_reach(client);
  if (result == DERATE_CLIENT_OK)
    result = derate_client_put_names(client, line, sizeof line, name, gpus);
  if (result != DERATE_CLIENT_OK) return result;
  return derate_client_ask(client, line, was_open, answer, sizeof answer);
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
  result = derate_client_ask(client, line, 0, answer, sizeof answer);
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

/* Appends ,"key":NUMBER, whatever the program's locale; nothing for what is not said. */
static inline void derate_client_count(char* out, size_t size, const char* key, double value) {
  const size_t at = strlen(out);
  char number[64], *comma;
  if (!(value > -1e300 && value < 1e300)) return;
  snprintf(number, sizeof number, "%.17g", value);
  for (comma = number; *comma != '\0'; ++comma)
    if (strchr("0123456789+-e", *comma) == NULL) *comma = '.';
  if (at + strlen(key) + strlen(number) + 8 < size)
    snprintf(out + at, size - at, ",\"%s\":%s", key, number);
}

static inline void derate_trial_take(derate_trial* trial, const char* answer) {
  const double size = derate_client_find(answer, NULL, "\"batch_size\":");
  const double lease = derate_client_find(answer, NULL, "\"lease_seconds\":");
  trial->id = (long long)derate_client_find(answer, NULL, "\"trial\":");
  derate_client_word(answer, "\"state\":\"", trial->state, sizeof trial->state);
  if (size >= 1) trial->batch_size = (int)size;
  trial->should_stop = trial->should_stop || strstr(answer, "\"stop\":true") != NULL;
  trial->may_retry = strstr(answer, "\"may_retry\":true") != NULL;
  trial->cost = derate_client_find(answer, NULL, "\"cost_joules\":");
  trial->joules = derate_client_find(answer, NULL, "\"energy_joules\":");
  trial->seconds = derate_client_find(answer, NULL, "\"time_seconds\":");
  if (lease > 0) trial->lease = lease;
}

/* Trials outlive the connection. */
static inline int derate_trial_ask(derate_client* client, derate_trial* trial, const char* line) {
  char answer[32768];
  int result = derate_client_reach(client);
  if (result != DERATE_CLIENT_OK) return result;
  result = derate_client_ask(client, line, 1, answer, sizeof answer);
  if (result != DERATE_CLIENT_OK) return result;
  if (*trial->token == '\0')
    derate_client_word(answer, "\"token\":\"", trial->token, sizeof trial->token);
  derate_trial_take(trial, answer);
  return DERATE_CLIENT_OK;
}

/* {"command":VERB,"trial":ID,"token":TOKEN, without its end. */
static inline void derate_trial_line(char* line, size_t size, const char* verb,
                                     const derate_trial* trial) {
  snprintf(line, size, "{\"command\":\"%s\",\"trial\":%lld,\"token\":\"%s\"", verb, trial->id,
           trial->token);
}

/* That of `derate tune run`, if it started us; then it tells the batch size. */
static inline int derate_trial_adopt(derate_client* client, derate_trial* trial) {
  const char *id = getenv("DERATE_TRIAL"), *token = getenv("DERATE_TRIAL_TOKEN");
  char line[256], *end = NULL;
  int result;
  if (id == NULL || token == NULL || strlen(token) >= sizeof trial->token) return 0;
  trial->id = strtoll(id, &end, 10);
  if (end == id || *end != '\0' || strspn(token, "0123456789abcdef") != strlen(token)) return 0;
  strcpy(trial->token, token);
  derate_trial_line(line, sizeof line - 3, "tune-trial-renew", trial);
  strcat(line, "}\n");
  result = derate_trial_ask(client, trial, line);
  if (result != DERATE_CLIENT_OK) *trial->token = '\0';
  return result == DERATE_CLIENT_OK;
}

/* Begins a run of a job; under `derate tune run` it is the trial that this began, whatever the job.
 * `gpus`: as in derate_window_begin(); NULL on a machine with one GPU. */
static inline int derate_trial_begin(derate_client* client, const char* job, const char* gpus,
                                     derate_trial* trial) {
  char line[1024] = "{\"command\":\"tune-trial-begin\",\"job\":";
  int result;
  memset(trial, 0, sizeof *trial);
  trial->cost = trial->joules = trial->seconds = DERATE_CLIENT_NONE;
  if (derate_trial_adopt(client, trial)) return DERATE_CLIENT_OK;
  result = derate_client_put_names(client, line, sizeof line, job, gpus);
  if (result != DERATE_CLIENT_OK) return result;
  return derate_trial_ask(client, trial, line);
}

/* How far it is: epochs and steps done, which only grow, and the metric after them;
 * NAN (or any infinity) for what is not said. Afterwards `should_stop` says whether to go on. More
 * often than each `lease` seconds, or derate_trial_renew(): a trial nothing is heard of is lost. */
static inline int derate_trial_report(derate_client* client, derate_trial* trial, double epoch,
                                      double steps, double metric) {
  char line[512];
  derate_trial_line(line, sizeof line, "tune-trial-report", trial);
  derate_client_count(line, sizeof line - 3, "epoch", epoch);
  derate_client_count(line, sizeof line - 3, "steps", steps);
  derate_client_count(line, sizeof line - 3, "metric", metric);
  strcat(line, "}\n");
  return derate_trial_ask(client, trial, line);
}

static inline int derate_trial_renew(derate_client* client, derate_trial* trial) {
  char line[256];
  derate_trial_line(line, sizeof line - 3, "tune-trial-renew", trial);
  strcat(line, "}\n");
  return derate_trial_ask(client, trial, line);
}

/* `outcome`: one of DERATE_TRIAL_*. */
static inline int derate_trial_end(derate_client* client, derate_trial* trial,
                                   const char* outcome) {
  char line[512];
  derate_trial_line(line, sizeof line, "tune-trial-end", trial);
  strncat(line, ",\"outcome\":", 12);
  if (!derate_client_put(line, sizeof line - 8, outcome))
    return derate_client_fail(client, DERATE_CLIENT_REFUSED, "the outcome does not fit or print");
  strcat(line, "}\n");
  return derate_trial_ask(client, trial, line);
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
static inline int derate_trial_begin(derate_client* client, const char* job, const char* gpus,
                                     derate_trial* trial) {
  (void)job, (void)gpus;
  memset(trial, 0, sizeof *trial);
  trial->cost = trial->joules = trial->seconds = DERATE_CLIENT_NONE;
  strncpy(client->error, "nobody tunes here", sizeof client->error - 1);
  return DERATE_CLIENT_NOBODY;
}
static inline int derate_trial_report(derate_client* client, derate_trial* trial, double epoch,
                                      double steps, double metric) {
  (void)client, (void)trial, (void)epoch, (void)steps, (void)metric;
  return DERATE_CLIENT_NOBODY;
}
static inline int derate_trial_renew(derate_client* client, derate_trial* trial) {
  (void)client, (void)trial;
  return DERATE_CLIENT_NOBODY;
}
static inline int derate_trial_end(derate_client* client, derate_trial* trial,
                                   const char* outcome) {
  (void)client, (void)trial, (void)outcome;
  return DERATE_CLIENT_NOBODY;
}

#endif

#endif
