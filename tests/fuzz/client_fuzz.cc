// Any bytes as requests of the client socket, a line each, from two connections by turns: answered
// with JSON or with a reason, never a crash, and no more kept than is allowed.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/text.h"
#include "service/answers/energy_service.h"
#include "service/answers/request_lines.h"

namespace {

using namespace derate;

void check_answer(const std::string& text) {
  const Json answer = parse_json(text);
  CHECK(answer.is_object() && answer.contains("ok") && answer["ok"].is_boolean());
  CHECK(answer["ok"] == true || (answer["error"].is_string() && answer["exit_code"].is_number()));
}

// A tick of both GPUs; the second has no counter.
void tick(EnergyService& service, FakeClock& clock, Duration step) {
  clock.advance(step);
  Sample sample;
  sample.time = clock.now();
  sample.power_usage = Watts(100);
  service.take("GPU-b", sample);
  sample.energy = Joules(100 * seconds(sample.time.time_since_epoch()));
  service.take("GPU-a", sample);
  service.settle();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  FakeClock clock;
  CommandRouter clients;
  RequestLines lines(clients);
  EnergyService service(clock, clients);
  service.here({{0, "GPU-a", "", "A"}, {1, "GPU-b", "", "B"}});
  std::uint64_t connection = 0;
  std::size_t waiting = 0;
  for (const std::string_view line : split(text, '\n')) {
    connection = connection % 2 + 1;
    const auto answer = lines.handle(line, {7, 1000, connection});
    if (answer)
      check_answer(*answer);
    else
      ++waiting;
    tick(service, clock, std::chrono::milliseconds(line.size() * 20));
    for (const auto& [to, late] : lines.take_late()) {
      check_answer(late);
      --waiting;
    }
    CHECK(service.windows().size() <= 2 * EnergyWindows::kMostWindows);
  }
  // Who waits is answered in the end.
  tick(service, clock, EnergyService::kPatience);
  CHECK(lines.take_late().size() == waiting);
  for (const std::uint64_t gone : {1, 2}) lines.closed({7, 1000, gone});
  CHECK(service.windows().size() == 0);
  return 0;
}
