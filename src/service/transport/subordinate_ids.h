// The person that a user id stands for. /etc/subuid gives a user thousands of ids, which rootless
// containers use. Limits count people, so all these ids are one person.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace derate {

struct SubordinateRange {
  std::uint32_t first = 0, last = 0;
  std::uint32_t person = 0;

  bool operator==(const SubordinateRange&) const = default;
};

// Reads lines "USER:FIRST:COUNT" (subuid(5)); USER is a name or a number. The ranges ascend and do
// not overlap: if two lines have an id, the first line counts. Invalid lines are skipped. Ranges of
// root, of system users (below kFirstUser), of names that `user` does not know, and ranges longer
// than kOfAUser belong to no single person. The kubelet, Podman, LXD and Docker give parts of such
// ranges to pods and containers. Each kOfAUser ids of them are a person, named by their first id.
// That person does not have root's places.
inline constexpr std::uint32_t kFirstUser = 1000, kOfAUser = 65536;
std::vector<SubordinateRange> subordinate_ranges(
    std::string_view text,
    const std::function<std::optional<std::uint32_t>(const std::string& name)>& user);

// The person of the range that has the id. Without such a range, the user itself.
std::uint32_t person_of(std::span<const SubordinateRange> ranges, std::uint32_t uid);

// The ranges of this machine. Names are looked up in passwd(5) alone, as a directory server may be
// down. Ranges from elsewhere (subid in nsswitch.conf) are not known.
class SubordinateIds {
 public:
  explicit SubordinateIds(std::string file = "/etc/subuid", std::string users = "/etc/passwd");

  // Reads the files if they have changed. Only one thread may call it at a time.
  void renew();
  // Callable from any thread; never waits for the files.
  std::uint32_t person_of(std::uint32_t uid) const;

 private:
  std::string file_, users_;
  std::string read_;  // look_of() the files when last read
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<SubordinateRange>> ranges_;
};

}  // namespace derate
