// Any bytes at all as fitted workloads and as measured tables: the readers may refuse, never crash,
// and what they accept has a point for every clock. Tables are parted by lines of "--".
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "device/sim/sim_workload.h"

namespace {

using namespace derate;

void check(const Error& error) {
  CHECK(error.code == Errc::bad_data);
  CHECK(error.message.find("fuzz-") == 0);
}

std::string_view next_part(std::string_view& rest) {
  constexpr std::string_view kBorder = "\n--\n";
  const auto at = rest.find(kBorder);
  const std::string_view part = rest.substr(0, at);
  rest = at == std::string_view::npos ? std::string_view{} : rest.substr(at + kBorder.size());
  return part;
}

void fits(std::string_view text, const SimChip& chip) {
  const auto parsed = parse_workload_fits(text, "fuzz-fits");
  if (!parsed.ok()) return check(parsed.error());
  for (const WorkloadFit& fit : *parsed) {
    CHECK(fit.serial_c >= 0 && fit.serial_c <= 1 && fit.sharpness_n >= 1 && fit.p0_w >= 0);
    CHECK(make_workload(fit, chip).phases.at(0).points.size() == chip.sm_clocks.size());
  }
}

void tables(std::string_view rest, const SimChip& chip) {
  WorkloadTables parts;
  parts.performance = {next_part(rest), "fuzz-performance"};
  parts.power = {next_part(rest), "fuzz-power"};
  if (!rest.empty()) parts.utilisation = {rest, "fuzz-utilisation"};
  const auto parsed = parse_workload_tables(parts, chip);
  if (!parsed.ok()) return check(parsed.error());
  CHECK(!parsed->empty());
  for (const Workload& workload : *parsed) {
    CHECK(workload.tabled && workload.phases.size() == 1);
    CHECK(workload.phases[0].points.size() == chip.sm_clocks.size());
    for (const OperatingPoint& point : workload.phases[0].points) {
      CHECK(point.rate >= 0 && point.power > Watts(0) && std::isfinite(point.power.value()));
      CHECK(parts.utilisation || !point.gpu_utilisation);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const SimChip& chip = sim_chips()[0];
  fits(text, chip);
  tables(text, chip);
  return 0;
}
