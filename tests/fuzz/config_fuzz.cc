// Any bytes at all as a configuration: it may be refused, never crash; what is accepted prints to a
// file that parses back to the same settings.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "config/config.h"
#include "config/experiment.h"

namespace {

using namespace derate;

template <class T>
void check_same(const Settings& a, const Settings& b, T Settings::*field) {
  CHECK(a.*field == b.*field);
}

void check_round_trip(const Settings& settings) {
  const std::string printed = print_config(settings);
  const auto back = parse_config(printed, "printed");
  CHECK(back.ok());
  check_same(settings, *back, &Settings::policy);
  check_same(settings, *back, &Settings::gpus);
  check_same(settings, *back, &Settings::dry_run);
  check_same(settings, *back, &Settings::lowest_clock_mhz);
  check_same(settings, *back, &Settings::highest_clock_mhz);
  check_same(settings, *back, &Settings::stale_after_s);
  check_same(settings, *back, &Settings::expire_after_s);
  check_same(settings, *back, &Settings::temperature_limit_celsius);
  CHECK(settings.policy_settings.size() == back->policy_settings.size());
}

// The same bytes as an experiment of the lab.
void check_experiment(std::string_view text) {
  const auto experiment = parse_experiment(text, "fuzz");
  if (!experiment.ok()) {
    CHECK(experiment.error().code == Errc::bad_config);
    CHECK(experiment.error().message.find("fuzz") == 0);
    return;
  }
  const std::string printed = print_experiment(*experiment);
  const auto back = parse_experiment(printed, "printed");
  CHECK(back.ok());
  CHECK(print_experiment(*back) == printed);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_experiment(text);
  const auto settings = parse_config(text, "fuzz");
  if (settings.ok()) {
    check_round_trip(*settings);
    return 0;
  }
  CHECK(settings.error().code == Errc::bad_config);
  CHECK(settings.error().message.find("fuzz:") == 0);
  return 0;
}
