// The C headers compile as C++, with its warnings.
#include <derate_beat.h>
#include <derate_client.h>

double use_clients_from_cxx() {
  derate_beat(1);
  derate_client client = DERATE_CLIENT_INIT;
  derate_window window = {};
  if (derate_window_begin(&client, "w", nullptr) == DERATE_CLIENT_OK)
    (void)derate_window_end(&client, "w", &window);
  derate_client_close(&client);
  return window.joules;
}
