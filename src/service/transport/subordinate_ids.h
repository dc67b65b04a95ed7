// The person that a user id stands for. /etc/subuid gives a user thousands of ids besides their
// own, as rootless containers use them: limits count people, and all of these are one person.
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

// Of lines "USER:FIRST:COUNT" (subuid(5)), USER being a name or a number; ascending, none overlaps
// another: of ids that two lines have, the first has them. Lines that are not understood are passed
// over. Ranges of root's, of system users (below kFirstUser) and of names that `user` does not
// know, and whatever is longer than kOfAUser, are of no single person: the kubelet, Podman, LXD and
// Docker give each pod or container a part of theirs. Each kOfAUser ids of these are a person, by
// their first id: what root gives to containers has not root's places.
inline constexpr std::uint32_t kFirstUser = 1000, kOfAUser = 65536;
std::vector<SubordinateRange> subordinate_ranges(
    std::string_view text,
    const std::function<std::optional<std::uint32_t>(const std::string& name)>& user);

// Who has that id in a range, else the user itself.
std::uint32_t person_of(std::span<const SubordinateRange> ranges, std::uint32_t uid);

// The ranges of this machine. Names are looked for in passwd(5) alone, as a directory server could
// be away; ranges that come from elsewhere (subid in nsswitch.conf) are not known.
class SubordinateIds {
 public:
  explicit SubordinateIds(std::string file = "/etc/subuid", std::string users = "/etc/passwd");

  // Reads the files where they have changed since. One thread at a time.
  void renew();
  // From any thread; never waits for the files.
  std::uint32_t person_of(std::uint32_t uid) const;

 private:
  std::string file_, users_;
  std::string read_;  // how the files looked
  mutable std::mutex mutex_;
  std::shared_ptr<const std::vector<SubordinateRange>> ranges_;
};

}  // namespace derate
