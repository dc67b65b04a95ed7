// Lease of a domain on the whole machine, for one governor: an flock on RUN_DIR/NAME.lock, held for
// as long as any process keeps the descriptor, so that it outlives no crash. NAME is a domain's
// short_name(): a GPU's UUID. Only its owner can open the file: a user that can open a file can
// lock it, and keep every governor out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace derate {

struct LeaseHolder {
  std::string name;    // as it called itself: "derated, pid 17"
  bool lives = false;  // that process is there; else whoever holds it is not named
};

// Takes it; `owner` ("derated, pid 17") is named to a second governor.
// A file that others can open (an earlier version's) is replaced first, unless a governor holds it.
// Errors: busy names the holder; no_permission, io.
Result<UniqueFd> take_lease(const std::string& run_folder, const std::string& name,
                            const std::string& owner);

// A process that was killed holds its locks until the last of its threads has ended, and one that
// waits for the disk ends late. Whoever comes next waits that long where the process that the lease
// names is gone.
inline constexpr Duration kExitPatience = std::chrono::seconds(5);

// The same, asked again until `deadline`, and in any case for kExitPatience while the process that
// it names is gone. `alive` is called before each wait. Errors: those of take_lease().
Result<UniqueFd> await_lease(Clock& clock, const std::string& run_folder, const std::string& name,
                             const std::string& owner, Instant deadline,
                             const std::function<void()>& alive);

// Whether a governor has that domain now; also where this user may not find out.
bool lease_is_held(const std::string& run_folder, const std::string& name);

// Who holds it; "another process" where it is only just being taken. Of a lease that was left: who
// held it last.
LeaseHolder lease_holder(const std::string& run_folder, const std::string& name);

// "derated, pid 17", or "an unknown process" and who is named in its place.
std::string describe(const LeaseHolder& holder);

// Start time of the process in the kernel's ticks, which together with the PID identifies it. 0:
// the process does not exist, or has ended and was not reaped.
std::uint64_t process_start(std::int64_t pid);

// Status, as from wait(2), of a process that has ended and was not reaped. If one of its threads is
// still in a call that cannot be killed, it cannot be reaped. Empty: the process lives, or does not
// exist.
std::optional<int> status_of_ended(std::int64_t pid);

// Whether that descriptor is the lease of that domain and of no other.
bool is_lease_of(int fd, const std::string& run_folder, const std::string& name);

}  // namespace derate
