#include "base/apart_thread.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <utility>

#include "base/background_worker.h"
#include "base/check.h"

namespace derate {
namespace {

#ifdef SYS_close_range
constexpr long kCloseRange = SYS_close_range;
#else
constexpr long kCloseRange = 436;  // Linux 5.9, all architectures
#endif
constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE: copies no descriptor that is closed

// Gives this thread its own descriptor table, with the descriptors above `last` closed.
bool have_own_table(int last) {
  if (::syscall(kCloseRange, static_cast<unsigned>(last) + 1, ~0u, kUnshare) == 0) return true;
  if (::unshare(CLONE_FILES) != 0) return false;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 16));
  for (int fd = last + 1; fd < end; ++fd) ::close(fd);
  return true;
}

bool go_apart(const std::vector<int>& kept) {
  const int last = *std::max_element(kept.begin(), kept.end());
  if (!have_own_table(last)) return false;
  for (int fd = 0; fd < last; ++fd)
    if (std::find(kept.begin(), kept.end(), fd) == kept.end()) ::close(fd);
  return true;
}

}  // namespace

std::future<bool> start_apart(std::vector<int> kept, std::function<void()> work) {
  CHECK(!kept.empty());
  auto apart = std::make_shared<std::promise<bool>>();
  auto out = apart->get_future();
  try {
    start_thread([apart, kept = std::move(kept), work = std::move(work)] {
      const bool is_apart = go_apart(kept);
      apart->set_value(is_apart);
      if (is_apart) work();
    });
  } catch (const std::system_error&) {
    apart->set_value(false);
  }
  return out;
}

}  // namespace derate
