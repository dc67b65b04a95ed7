// Any bytes as requests about jobs that recur, one a line: taken or refused, never a crash, and
// what is read is written the same; a registry that is asked all of them stays whole.
#include <cstdint>
#include <string_view>

#include "api/requests.h"
#include "base/check.h"
#include "base/text.h"
#include "tune/trial_registry.h"

namespace derate {
namespace {

struct Clerk {
  TrialRegistry registry{std::chrono::seconds(60)};
  Instant now{};

  void obey(const JobCreate& m) {
    const auto how = m.replace ? TrialRegistry::Replace::yes : TrialRegistry::Replace::no;
    (void)registry.create(m.spec, 1, how, {}).ok();
  }
  void obey(const JobShow& m) { (void)registry.job(m.job).ok(); }
  template <class Other>
  void obey(const Other&) {}  // of no job
  void obey(const JobRemove& m) { (void)registry.remove(m.job, 1).ok(); }
  void obey(const TrialStart& m) {
    (void)registry.begin({m.job, {m.gpus}, m.retry_of, "t"}, 1, now, {}).ok();
  }
  void obey(const TrialReport& m) {
    (void)registry.report(m.trial, {1, m.token}, {m.epoch, m.steps, m.metric}, {.cost = 1}, now)
        .ok();
  }
  void obey(const TrialEnd& m) {
    if (const auto outcome = trial_state_of(m.outcome))
      (void)registry.end(m.trial, {1, m.token}, *outcome, {}, now, {}).ok();
  }
  void obey(const TrialRenew& m) { (void)registry.renew(m.trial, {1, m.token}, now).ok(); }
};

}  // namespace
}  // namespace derate

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Clerk clerk;
  for (const std::string_view line : split(text, '\n')) {
    const auto request = parse_request(line);
    if (!request.ok()) {
      CHECK(request.error().code == Errc::invalid_argument);
      continue;
    }
    const std::string written = request_text(*request);
    const auto back = parse_request(written);
    CHECK(back.ok() && request_text(*back) == written);
    clerk.now += std::chrono::seconds(line.size() % 40);
    std::visit([&](const auto& message) { clerk.obey(message); }, *request);
    for (const auto& [name, job] : clerk.registry.jobs())
      for (const std::int64_t id : job.trials) CHECK(clerk.registry.find(id) != nullptr);
  }
  return 0;
}
