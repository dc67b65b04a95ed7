// The C headers compile as C++, with its warnings.
#include <derate_beat.h>
#include <derate_client.h>

double use_clients_from_cxx() {
  derate_beat(1);
  derate_client client = DERATE_CLIENT_INIT;
  derate_window window = {};
  if (derate_window_begin(&client, "w", nullptr) == DERATE_CLIENT_OK)
    (void)derate_window_end(&client, "w", &window);
  derate_trial trial = {};
  if (derate_trial_begin(&client, "job", nullptr, &trial) == DERATE_CLIENT_OK) {
    (void)derate_trial_report(&client, &trial, 1, 100, 0.5);
    (void)derate_trial_renew(&client, &trial);
    (void)derate_trial_end(&client, &trial, DERATE_TRIAL_MISSED);
  }
  derate_client_close(&client);
  return window.joules;
}
