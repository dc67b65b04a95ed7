// Any bytes as an engine's metrics page: a state with finite values of at least 0 and cumulative
// counts, or an error.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/check.h"
#include "signal/serving/read_engine.h"

namespace {

using namespace derate;

void check_histogram(const LatencyHistogram& of) {
  CHECK(of.counts.size() == of.edges_s.size() + 1);
  CHECK(std::isfinite(of.sum_s) && of.sum_s >= 0);
  for (std::size_t i = 0; i < of.counts.size(); ++i)
    CHECK(std::isfinite(of.counts[i]) && of.counts[i] >= (i > 0 ? of.counts[i - 1] : 0));
  for (std::size_t i = 0; i < of.edges_s.size(); ++i)
    CHECK(std::isfinite(of.edges_s[i]) && of.edges_s[i] >= 0 &&
          (i == 0 || of.edges_s[i] > of.edges_s[i - 1]));
}

void check_reading(std::string_view text, const EngineNames* wanted, std::string_view model) {
  const auto reading = read_engine(text, wanted, model);
  if (!reading.ok()) {
    CHECK(reading.error().message.size() < 2000);
    return;
  }
  std::size_t present = 0;
  for (const EngineRole& role : engine_roles()) {
    if (role.number != nullptr) {
      const std::optional<double>& number = reading->state.*role.number;
      CHECK(!number || (std::isfinite(*number) && *number >= 0));
      CHECK(!number || role.kind != RoleKind::share || *number <= 1);
      present += number.has_value() ? 1 : 0;
    } else if (reading->state.*role.histogram) {
      check_histogram(*(reading->state.*role.histogram));
      ++present;
    }
  }
  CHECK(present + reading->missing.size() == engine_roles().size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_reading(text, nullptr, "");
  check_reading(text, nullptr, "m");
  const ConfiguredEngine configured{.between_tokens = "t", .running = "r", .kv_share = "k"};
  const EngineNames names = engine_names(configured);
  check_reading(text, &names, "");
  return 0;
}
