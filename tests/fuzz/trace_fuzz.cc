// Any bytes at all through both trace readers: they may refuse, never crash, and what they accept
// must hold what their header promises.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "device/replay/csv_trace.h"
#include "device/replay/trace_format.h"
#include "device/replay/trace_reader.h"

namespace {

using namespace derate;

void check(const Result<Trace>& trace) {
  if (!trace) {
    CHECK(trace.error().code == Errc::bad_data);
    CHECK(trace.error().message.find("fuzz:") != std::string::npos);
    return;
  }
  Instant last{};
  CHECK(trace->samples.empty() || trace->samples.front().time == last);
  for (const Sample& sample : trace->samples) {
    CHECK(sample.time >= last);
    last = sample.time;
  }
  for (const TraceLabel& label : trace->labels) CHECK(label.time <= last);
  const TraceHeader header{trace->capability, trace->start, trace->interval, trace->tags};
  CHECK(format_header(header).find('\n') == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check(parse_trace(text, "fuzz"));
  check(parse_csv_trace(text, "fuzz", {}));
  return 0;
}
