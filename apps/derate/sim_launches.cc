#include "sim_launches.h"

#include <fmt/format.h>

#include <cstdlib>

#include "config/paths.h"
#include "service/workloads/launch_socket.h"

namespace derate::cli {
namespace {

constexpr Duration kHandOverEvery = std::chrono::minutes(1);

std::string listener() {
  const char* const named = std::getenv("DERATE_LAUNCHES_SOCKET");
  return named != nullptr && *named != '\0' ? named : launch_socket();
}

}  // namespace

Result<SimLaunches> SimLaunches::create(const std::string& recording, const std::string& uuid) {
  LaunchRecording steps = TRY(read_launches(recording)).by_steps(std::chrono::seconds(1));
  if (steps.rows.size() < 2)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}' has no launches of two steps", recording)};
  return SimLaunches(std::move(steps), TRY(LaunchPageWriter::create(uuid)));
}

Result<void> SimLaunches::show(Duration work, const Clock& clock) {
  TRY(page_.write(launches_after(recording_, work)));
  if (next_ && clock.now() < *next_) return {};
  next_ = clock.now() + kHandOverEvery;
  (void)hand_over_page(listener(), page_.file()).ok();  // nobody needs to count them
  return {};
}

}  // namespace derate::cli
