#include "service/transport/listen.h"

#include <poll.h>
#include <time.h>

#include <cerrno>
#include <vector>

namespace derate {

bool listen_until(std::span<const PollSource> sources, Clock& clock, Instant deadline) {
  std::vector<pollfd> files;
  for (const PollSource& source : sources) files.push_back({source.fd, POLLIN, 0});
  for (int left = kMostWakes; left > 0; --left) {
    const Duration wait = deadline - clock.now();
    if (wait <= Duration::zero()) return true;
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(wait);
    const timespec time{whole.count(), (wait - whole).count()};
    const int ready = ::ppoll(files.data(), files.size(), &time, nullptr);
    if (ready < 0) return errno != EINTR && clock.sleep_until(deadline);
    if (ready == 0) return true;
    bool ended = false;
    for (std::size_t i = 0; i < files.size(); ++i) {
      if (files[i].revents == 0) continue;
      sources[i].serve();
      ended = ended || sources[i].ends_wait;
    }
    if (ended) return false;
  }
  return clock.sleep_until(deadline);
}

}  // namespace derate
