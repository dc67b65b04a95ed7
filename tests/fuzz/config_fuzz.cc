// Any bytes at all as a configuration, in one file or, cut at zero bytes, in several, as an
// experiment and as a chip: it may be refused, never crash; a configuration or experiment that is
// accepted prints to a file that parses back to the same.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "config/chip_file.h"
#include "config/config.h"
#include "config/experiment.h"
#include "config/set_file.h"
#include "config/setting_list.h"

namespace {

using namespace derate;

template <class T>
void check_same(const Settings& a, const Settings& b, T Settings::*field) {
  CHECK(a.*field == b.*field);
}

// Of several files what is said may be said in one.
void check_files(std::string_view text) {
  std::vector<ConfigFile> files;
  for (const std::string_view part : split(text, '\0'))
    files.push_back({"fuzz" + std::to_string(files.size()), std::string(part)});
  const auto several = parse_configs(files);
  if (!several.ok()) {
    CHECK(several.error().code == Errc::bad_config);
    CHECK(several.error().message.find("fuzz") == 0);
    return;
  }
  const auto one = parse_config(print_said(*several), "one");
  CHECK(one.ok());
  CHECK(setting_changes(*several, *one).empty());
}

// The first part as what was set so far, the others as words of `config set`: what comes out is a
// file, and says nothing that no word says.
void check_set(std::string_view text) {
  const auto parts = split(text, '\0');
  const ConfigFile now{"fuzz", std::string(parts.front())};
  ConfigEdit edit;
  for (std::size_t i = 1; i < parts.size(); ++i) {
    auto& words = parts[i].starts_with('-') ? edit.unset : edit.set;
    words.emplace_back(parts[i].substr(parts[i].starts_with('-') ? 1 : 0));
  }
  const auto edited = edited_set_file(now, edit);
  if (!edited.ok()) return;
  const auto before = read_configs({&now, 1});
  const ConfigFile after{"after", *edited};
  const auto said = read_configs({&after, 1});
  CHECK(before.ok() && said.ok());
  CHECK(setting_changes(*before, *said).size() <= edit.set.size() + edit.unset.size());
  CHECK(edited_set_file(after, {}).ok() && *edited_set_file(after, {}) == *edited);
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

// ... and as a chip.
void check_chip(std::string_view text) {
  const auto chip = parse_chip_file(text, "fuzz");
  if (!chip.ok()) {
    CHECK(chip.error().code == Errc::bad_config);
    CHECK(chip.error().message.find("fuzz") == 0);
    return;
  }
  const auto clocks = sm_clocks(chip->clocks);
  CHECK(!clocks.empty() && clocks.size() <= kMostClocks);
  CHECK(std::adjacent_find(clocks.begin(), clocks.end(), std::greater_equal<>()) == clocks.end());
  CHECK(!chip->idle.points.empty() && *chip->power.default_w > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_experiment(text);
  check_chip(text);
  check_files(text);
  check_set(text);
  const auto settings = parse_config(text, "fuzz");
  if (settings.ok()) {
    check_round_trip(*settings);
    return 0;
  }
  CHECK(settings.error().code == Errc::bad_config);
  CHECK(settings.error().message.find("fuzz:") == 0);
  return 0;
}
