// Any bytes as what `derate attribute --ticks` wrote: a picture of every GPU that the first line
// names, or an error, never a crash, and no energy below zero.
#include <cstdint>
#include <string_view>

#include "attrib/ticks_reader.h"
#include "base/check.h"
#include "base/json.h"
#include "base/text.h"

namespace {

using namespace derate;

void check_picture(const Json& gpu) {
  CHECK(gpu.is_object() && gpu.contains("tenants") && gpu["tenants"].is_array());
  for (const Json& tenant : gpu["tenants"]) CHECK(tenant["energy_joules"].get<double>() >= 0);
  CHECK(parse_json(json_text(gpu)).is_object());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lines = split(text, '\n');
  const auto rules = attribution_rules("", "unallocated");
  CHECK(rules.ok());
  auto ticks = TicksReader::create(lines.front(), *rules);
  CHECK(ticks.ok() || ticks.error().code == Errc::bad_data);
  if (!ticks.ok()) return 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    const auto ticked = ticks->take(lines[i]);
    CHECK(ticked.ok() || ticked.error().code == Errc::bad_data);
  }
  for (const GpuAttribution& board : ticks->boards()) check_picture(picture_json(board.picture()));
  return 0;
}
