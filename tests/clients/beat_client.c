/* The C header as a program uses it: FUNCTION ARGUMENT..., for clients_test.py. */
#include <derate_beat.h>

#include <locale.h>

static double number(const char* text) {
  double value = 0;
  return sscanf(text, "%lf", &value) == 1 ? value : DERATE_BEAT_NONE;
}

static const char* word(const char* text) { return *text == '-' ? NULL : text; }

int main(int count, char** arguments) {
  if (count == 2) derate_beat(number(arguments[1]));
  if (count == 5) {
    const double done = number(arguments[1]), max_loss = number(arguments[3]);
    setlocale(LC_ALL, "");
    errno = 0;
    derate_beat_say(done, word(arguments[2]), max_loss, word(arguments[4]));
  }
  if (count == 3) {
    const double most = number(arguments[2]);
    double done;
    for (done = 1; done <= most; done += 1) derate_beat(done);
  }
  return errno == 0 ? 0 : 1; /* what the program had there is its own */
}
