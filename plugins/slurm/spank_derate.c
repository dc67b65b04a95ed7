/* libderate_spank.so: options of srun, sbatch and salloc by which users request what a job may
 * lose. It checks their form where the job is submitted, hands them to the prolog (SPANK_DERATE,
 * ...), and sets DERATE_DELTA and DERATE_TUNE_JOB in the job. derated decides on the node who may
 * have which.
 *
 * In plugstack.conf:
 *   optional libderate_spank.so [progress=/usr/lib/derate/libderate_progress.so]
 * With `progress` the job's programs are preloaded with that library, unless the job's environment
 * has DERATE_PROGRESS=off. Slurm loads a plugin only if it was built for the same major version.
 */
#include <slurm/spank.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SPANK_PLUGIN(derate, 1);

enum { kMostName = 256 };

static char wish[21]; /* "on", "off", or a loss such as "0.1"; empty: not given */
static char policy[kMostName];
static char job[kMostName];

/* A decimal fraction below 1 and above 0: digits and one point, whatever the locale. */
static int is_loss(const char *text) {
  int digits = 0, points = 0, positive = 0;
  const char *at = text;
  if (strlen(text) >= sizeof wish || text[0] == '\0') return 0;
  if (*at == '0') ++at;
  for (; *at != '\0'; ++at) {
    if (*at == '.') {
      ++points;
    } else if (*at >= '0' && *at <= '9' && points == 1) {
      ++digits;
      positive |= *at != '0';
    } else {
      return 0;
    }
  }
  return points == 1 && digits > 0 && positive;
}

static int take_wish(int val, const char *text, int remote) {
  (void)val;
  (void)remote;
  if (text != NULL && (strcmp(text, "on") == 0 || strcmp(text, "off") == 0 || is_loss(text))) {
    snprintf(wish, sizeof wish, "%s", text);
    return 0;
  }
  slurm_error(
      "--derate=%.40s: allowed are on, off, and the most performance that may be lost, "
      "such as 0.1",
      text == NULL ? "" : text);
  return -1;
}

/* A name of letters, digits and ._-:/@+ as derated accepts it. */
static int take_name(const char *option, const char *text, char *out) {
  const size_t length = text == NULL ? 0 : strlen(text);
  const char *const allowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-:/@+";
  if (length > 0 && length < kMostName && strspn(text, allowed) == length) {
    memcpy(out, text, length + 1);
    return 0;
  }
  slurm_error("%s=%.40s: allowed is a name of up to 255 letters, digits and ._-:/@+", option,
              text == NULL ? "" : text);
  return -1;
}

static int take_policy(int val, const char *text, int remote) {
  (void)val;
  (void)remote;
  return take_name("--derate-policy", text, policy);
}

static int take_job(int val, const char *text, int remote) {
  (void)val;
  (void)remote;
  return take_name("--derate-job", text, job);
}

static struct spank_option options[] = {
    {"derate", "on|off|LOSS",
     "Have the job's GPUs governed for the least energy: on, off, or the most performance that the "
     "job may lose, such as 0.1",
     1, 0, take_wish},
    {"derate-policy", "NAME", "The policy by which they are governed; default: the node's", 1, 0,
     take_policy},
    {"derate-job", "NAME", "The --job of derate tune run in the job", 1, 0, take_job},
};

int slurm_spank_init(spank_t sp, int ac, char **av) {
  size_t i;
  (void)ac;
  (void)av;
  for (i = 0; i < sizeof options / sizeof options[0]; ++i)
    if (spank_option_register(sp, &options[i]) != ESPANK_SUCCESS) return -1;
  return 0;
}

/* Where the job is submitted: for the prolog of each of its nodes. */
int slurm_spank_init_post_opt(spank_t sp, int ac, char **av) {
  const spank_context_t context = spank_context();
  (void)ac;
  (void)av;
  if (context != S_CTX_LOCAL && context != S_CTX_ALLOCATOR) return 0;
  if (wish[0] != '\0') spank_job_control_setenv(sp, "DERATE", wish, 1);
  if (policy[0] != '\0') spank_job_control_setenv(sp, "DERATE_POLICY", policy, 1);
  if (job[0] != '\0') spank_job_control_setenv(sp, "DERATE_JOB", job, 1);
  return 0;
}

/* Puts the library first in LD_PRELOAD, once. */
static void preload(spank_t sp, const char *library) {
  char before[3072], all[4096];
  char word[8];
  if (spank_getenv(sp, "DERATE_PROGRESS", word, sizeof word) == ESPANK_SUCCESS &&
      strcmp(word, "off") == 0)
    return;
  if (access(library, R_OK) != 0) return;
  before[0] = '\0';
  if (spank_getenv(sp, "LD_PRELOAD", before, sizeof before) == ESPANK_NOSPACE) return;
  if (strstr(before, library) != NULL) return;
  snprintf(all, sizeof all, "%s%s%s", library, before[0] == '\0' ? "" : ":", before);
  spank_setenv(sp, "LD_PRELOAD", all, 1);
}

/* On the node, as the user, before the tasks of a step begin. */
int slurm_spank_user_init(spank_t sp, int ac, char **av) {
  int i;
  if (is_loss(wish)) spank_setenv(sp, "DERATE_DELTA", wish, 1);
  if (job[0] != '\0') spank_setenv(sp, "DERATE_TUNE_JOB", job, 1);
  for (i = 0; i < ac; ++i)
    if (strncmp(av[i], "progress=/", 10) == 0) preload(sp, av[i] + 9);
  return 0;
}
