#include "dcgm_settings.h"

#include "govern/fleet/policy_choice.h"

namespace derate::cli {

DcgmChoice dcgm_choice(const Settings& settings) {
  DcgmChoice out;
  if (settings.dcgm.use == "off") out.use = DcgmUse::off;
  if (settings.dcgm.use == "on") out.use = DcgmUse::all;
  if (const auto address = parse_dcgm_address(settings.dcgm.address); address.ok())
    out.addresses = {*address};
  return out;
}

std::shared_ptr<DcgmConnection> dcgm_connection(const Settings& settings, const Log& log) {
  static const SystemClock clock;  // a thread that is left behind uses it
  return std::make_shared<DcgmConnection>(dcgm_choice(settings), clock, log);
}

std::shared_ptr<DcgmConnection> machine_dcgm() {
  const auto settings = load_settings("");
  return dcgm_connection(settings.ok() ? *settings : Settings{});
}

}  // namespace derate::cli
