/* The C header as a program uses it: reads lines from standard input, for energy_test.py.
 *
 *     begin NAME [GPUS]   end NAME   fork-end NAME      each answered with a line */
#define _POSIX_C_SOURCE 200809L
#include <derate_client.h>

#include <locale.h>
#include <sys/wait.h>

static void say(derate_client* client, int result) {
  printf("%d %s\n", result, result == DERATE_CLIENT_OK ? "" : client->error);
}

static void end(derate_client* client, const char* name) {
  derate_window window;
  int i;
  const int result = derate_window_end(client, name, &window);
  if (result != DERATE_CLIENT_OK) {
    say(client, result);
    return;
  }
  setlocale(LC_NUMERIC, "C");
  printf("%d %.6f %.6f", result, window.seconds, window.joules);
  for (i = 0; i < window.gpus; ++i)
    printf(" %d:%.6f:%.6f:%.6f", window.gpu[i].index, window.gpu[i].joules, window.gpu[i].uncovered,
           window.gpu[i].integrated);
  printf("\n");
  setlocale(LC_ALL, "");
}

int main(void) {
  derate_client client = DERATE_CLIENT_INIT;
  char line[600];
  setlocale(LC_ALL, "");
  while (fgets(line, sizeof line, stdin) != NULL) {
    char* rest = NULL;
    const char* verb = strtok_r(line, " \n", &rest);
    const char* name = strtok_r(NULL, " \n", &rest);
    const char* gpus = strtok_r(NULL, " \n", &rest);
    if (verb == NULL || name == NULL) continue;
    if (strcmp(verb, "begin") == 0) say(&client, derate_window_begin(&client, name, gpus));
    if (strcmp(verb, "end") == 0) end(&client, name);
    if (strcmp(verb, "fork-end") == 0) {
      fflush(stdout);
      if (fork() == 0) {
        end(&client, name);
        return 0;
      }
      wait(NULL);
    }
    fflush(stdout);
  }
  derate_client_close(&client);
  return 0;
}
