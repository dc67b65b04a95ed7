/* The C header as a training uses it: reads lines from standard input, for trial_test.py.
 *
 *     begin JOB [GPUS]   report EPOCH STEPS METRIC   renew   end OUTCOME   code
 *
 * Each is answered with RESULT STATE BATCH_SIZE SHOULD_STOP MAY_RETRY JOULES COST SECONDS, or
 * RESULT and the error; `code` with the last error's. */
#define _POSIX_C_SOURCE 200809L
#include <derate_client.h>

#include <locale.h>
#include <math.h>

static void say(const derate_client* client, const derate_trial* trial, int result) {
  if (result != DERATE_CLIENT_OK) {
    printf("%d %s\n", result, client->error);
    return;
  }
  setlocale(LC_NUMERIC, "C");
  printf("%d %s %d %d %d %.6f %.6f %.6f\n", result, trial->state, trial->batch_size,
         trial->should_stop, trial->may_retry, trial->joules, trial->cost, trial->seconds);
  setlocale(LC_ALL, "");
}

static double number(const char* text) {
  double value = NAN;
  setlocale(LC_NUMERIC, "C");
  if (text != NULL && sscanf(text, "%lf", &value) != 1) value = NAN;
  setlocale(LC_ALL, "");
  return value;
}

int main(void) {
  derate_client client = DERATE_CLIENT_INIT;
  derate_trial trial;
  char line[600];
  memset(&trial, 0, sizeof trial);
  setlocale(LC_ALL, "");
  while (fgets(line, sizeof line, stdin) != NULL) {
    char* rest = NULL;
    const char* verb = strtok_r(line, " \n", &rest);
    const char* a = strtok_r(NULL, " \n", &rest);
    const char* b = strtok_r(NULL, " \n", &rest);
    const char* c = strtok_r(NULL, " \n", &rest);
    int result = -1;
    if (verb == NULL) continue;
    if (strcmp(verb, "code") == 0) {
      printf("%s\n", client.code);
      fflush(stdout);
      continue;
    }
    if (strcmp(verb, "begin") == 0) result = derate_trial_begin(&client, a, b, &trial);
    if (strcmp(verb, "report") == 0)
      result = derate_trial_report(&client, &trial, number(a), number(b), number(c));
    if (strcmp(verb, "renew") == 0) result = derate_trial_renew(&client, &trial);
    if (strcmp(verb, "end") == 0) result = derate_trial_end(&client, &trial, a);
    say(&client, &trial, result);
    fflush(stdout);
  }
  derate_client_close(&client);
  return 0;
}
