// Any bytes as heartbeats, a datagram a line: taken or refused, never a crash, and never more kept
// than the registry allows.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "govern/heartbeat_registry.h"
#include "govern/job_classes.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  HeartbeatRegistry registry;
  std::vector<GpuTenants> gpus(2);
  gpus[1].id.index = 1;
  ProcessFacts process;
  process.pid = 7;
  process.uid = 1;
  for (GpuTenants& gpu : gpus) gpu.tenants = {{process, {}}};
  const PromiseRules rules;
  Instant now{};
  for (const std::string_view line : split(text, '\n')) {
    (void)parse_asked_loss(line).ok();
    now += std::chrono::milliseconds(line.size() * 10);
    const auto message = parse_beat(line);
    if (!message.ok()) {
      CHECK(message.error().code == Errc::invalid_argument);
      continue;
    }
    const auto back = parse_beat(format_beat(*message));
    CHECK(back.ok() && *back == *message);
    const auto uid = static_cast<std::uint32_t>(line.size() % 3);
    registry.add(*message, {uid, 7}, process, now);
    CHECK(registry.sources() <= HeartbeatRegistry::kMostSources);
    for (const GpuWork& work : registry.status(gpus, rules, now))
      for (const Promise& one : work.status.promises) CHECK(max_loss(one) <= rules.max_delta);
  }
  return 0;
}
