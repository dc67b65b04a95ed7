#include "device/dcgm/dcgm_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>

#include "base/background_worker.h"
#include "device/dcgm/dcgm_log.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 2s;
// A worker that ends beats no more. The engine forgets a connection that has gone, too.
constexpr Duration kEndPatience = 500ms;

}  // namespace

struct DcgmReader::Shared {
  Shared(DcgmUse use, DcgmWatcher::Connect connect, const Clock& the_clock, Log the_log)
      : watcher(std::in_place, use, std::move(connect), the_clock),
        clock(the_clock),
        log(use, std::move(the_log)) {}

  std::optional<DcgmWatcher> watcher;  // the thread's own
  const Clock& clock;
  mutable std::mutex mutex;
  std::condition_variable changed;
  DcgmNeeds needs;
  DcgmState state;
  DcgmLog log;
  std::optional<Instant> since;  // the start of a look that has not ended
  bool woken = false, stop = false, ended = false;

  static void work(const std::shared_ptr<Shared>& shared) {
    std::unique_lock lock(shared->mutex);
    while (!shared->stop) {
      const DcgmNeeds needs = shared->needs;
      shared->since = shared->clock.now();
      shared->woken = false;
      lock.unlock();
      const Instant next = shared->watcher->look(needs);
      lock.lock();
      shared->state = shared->watcher->state();
      shared->log.note(shared->state, shared->clock.now());
      shared->since.reset();
      const Duration left = next - shared->clock.now();
      shared->changed.wait_for(lock, std::max(left, Duration{}),
                               [&] { return shared->stop || shared->woken; });
    }
    lock.unlock();
    shared->watcher.reset();  // the connection ends by calls, too
    lock.lock();
    shared->ended = true;
    shared->changed.notify_all();
  }
};

Result<std::unique_ptr<DcgmReader>> DcgmReader::create(DcgmUse use, DcgmWatcher::Connect connect,
                                                       const Clock& clock, Log log) {
  auto shared = std::make_shared<Shared>(use, std::move(connect), clock, std::move(log));
  try {
    start_thread([shared] { Shared::work(shared); });
  } catch (const std::system_error& error) {
    return Error{Errc::io, fmt::format("no thread for DCGM's calls: {}", error.what())};
  }
  return std::unique_ptr<DcgmReader>(new DcgmReader(std::move(shared)));
}

DcgmReader::~DcgmReader() {
  std::unique_lock lock(shared_->mutex);
  shared_->stop = true;
  shared_->changed.notify_all();
  if (shared_->since && shared_->clock.now() - *shared_->since > kEndPatience) return;
  shared_->changed.wait_for(lock, kEndPatience, [&] { return shared_->ended; });
}

void DcgmReader::need(const std::string& uuid, Duration period, Duration lasts, int partition) {
  const std::lock_guard lock(shared_->mutex);
  const Instant now = shared_->clock.now();
  if (shared_->since && now - *shared_->since > kPatience)
    shared_->log.note_silence(now - *shared_->since);
  const auto before = shared_->needs.find(uuid);
  const bool fresh = before == shared_->needs.end() || before->second.until <= now ||
                     before->second.period != period || before->second.partition != partition;
  shared_->needs[uuid] = {period, now + lasts, partition};
  if (!fresh) return;
  shared_->woken = true;
  shared_->changed.notify_all();
}

std::optional<DcgmNews> DcgmReader::newest(const DcgmPart& part) const {
  const std::lock_guard lock(shared_->mutex);
  const auto found = shared_->state.news.find(part);
  if (found == shared_->state.news.end()) return std::nullopt;
  const Duration age = shared_->clock.now() - found->second.taken;
  if (age > 2 * found->second.period) return std::nullopt;
  return found->second;
}

DcgmReader::Status DcgmReader::status(const std::string& uuid) const {
  const std::lock_guard lock(shared_->mutex);
  Status out{shared_->state.engine, shared_->state.problem};
  const auto of_gpu = shared_->state.gpu_problems.find(uuid);
  if (of_gpu != shared_->state.gpu_problems.end()) out.problem = of_gpu->second;
  if (shared_->since && shared_->clock.now() - *shared_->since > kPatience)
    out.problem = fmt::format("the host engine has not answered for {:.0f} s",
                              seconds(shared_->clock.now() - *shared_->since));
  return out;
}

}  // namespace derate
