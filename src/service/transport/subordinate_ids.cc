#include "service/transport/subordinate_ids.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>

#include "base/number.h"
#include "base/text.h"
#include "base/text_file.h"

namespace derate {
namespace {

constexpr std::uint32_t kHighest = 0xfffffffe;  // (uid_t)-1 is no user

struct Line {
  std::string user;
  std::uint32_t first = 0, last = 0;
};

std::optional<Line> parse_line(std::string_view text) {
  const auto words = split(trim(text), ':');
  if (words.size() != 3 || words[0].empty()) return std::nullopt;
  const auto first = parse_number<std::uint32_t>(words[1]);
  const auto count = parse_number<std::uint64_t>(words[2]);
  if (!first || !count || *first == 0 || *first > kHighest || *count == 0) return std::nullopt;
  const std::uint64_t most = std::uint64_t{kHighest} - *first + 1;
  const auto last = static_cast<std::uint32_t>(*first + std::min(*count, most) - 1);
  return Line{std::string(words[0]), *first, last};
}

// Adds the part of the range that no earlier range has.
void add(std::map<std::uint32_t, SubordinateRange>& all, SubordinateRange range) {
  auto at = all.upper_bound(range.first);
  if (at != all.begin() && std::prev(at)->second.last >= range.first) --at;
  std::uint64_t from = range.first;
  std::vector<SubordinateRange> more;
  for (; from <= range.last && at != all.end() && at->first <= range.last; ++at) {
    if (at->first > from)
      more.push_back({static_cast<std::uint32_t>(from), at->first - 1, range.person});
    from = std::uint64_t{at->second.last} + 1;
  }
  if (from <= range.last)
    more.push_back({static_cast<std::uint32_t>(from), range.last, range.person});
  for (const SubordinateRange& each : more) all.emplace(each.first, each);
}

// Adds the parts that container runtimes give out: each pod or container has the next kOfAUser ids.
void add_parts(std::map<std::uint32_t, SubordinateRange>& all, const Line& line) {
  for (std::uint64_t first = line.first; first <= line.last; first += kOfAUser) {
    const auto last = std::min<std::uint64_t>(line.last, first + kOfAUser - 1);
    const auto person = static_cast<std::uint32_t>(first);
    add(all, {person, static_cast<std::uint32_t>(last), person});
  }
}

// User ids by name. Empty: the file exists but cannot be read.
std::optional<std::map<std::string, std::uint32_t>> users_of(const std::string& file) {
  std::map<std::string, std::uint32_t> out;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "re"),
                                                           std::fclose);
  if (in == nullptr && errno != ENOENT) return std::nullopt;
  if (in == nullptr) return out;
  while (const passwd* const each = ::fgetpwent(in.get())) out.emplace(each->pw_name, each->pw_uid);
  return out;
}

// Returns another text after each change of the file.
std::string look_of(const std::string& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) return "none";
  return fmt::format("{} {} {} {}.{}", info.st_dev, info.st_ino, info.st_size, info.st_ctim.tv_sec,
                     info.st_ctim.tv_nsec);
}

}  // namespace

std::vector<SubordinateRange> subordinate_ranges(
    std::string_view text,
    const std::function<std::optional<std::uint32_t>(const std::string& name)>& user) {
  std::map<std::uint32_t, SubordinateRange> all;
  for (const std::string_view each : split(text, '\n')) {
    const auto line = parse_line(each);
    if (!line) continue;
    const auto number = parse_uid(line->user);
    const auto owner = number ? std::optional<std::uint32_t>(*number) : user(line->user);
    const bool is_a_user = owner && *owner >= kFirstUser && line->last - line->first < kOfAUser;
    if (is_a_user)
      add(all, {line->first, line->last, *owner});
    else
      add_parts(all, *line);
  }
  std::vector<SubordinateRange> out;
  for (const auto& [first, range] : all) out.push_back(range);
  return out;
}

std::uint32_t person_of(std::span<const SubordinateRange> ranges, std::uint32_t uid) {
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), uid,
      [](std::uint32_t id, const SubordinateRange& range) { return id < range.first; });
  if (after == ranges.begin() || std::prev(after)->last < uid) return uid;
  return std::prev(after)->person;
}

SubordinateIds::SubordinateIds(std::string file, std::string users)
    : file_(std::move(file)),
      users_(std::move(users)),
      ranges_(std::make_shared<const std::vector<SubordinateRange>>()) {}

void SubordinateIds::renew() {
  const std::string look = look_of(file_) + ", " + look_of(users_);
  if (look == read_) return;
  const auto users = users_of(users_);
  const auto text = read_file(file_);
  // If a read fails, such as for want of a descriptor, the known ranges stay and the next call
  // tries again.
  if ((!text.ok() && text.error().code != Errc::not_found) || !users) return;
  read_ = look;
  auto ranges = std::make_shared<const std::vector<SubordinateRange>>(subordinate_ranges(
      text.ok() ? *text : "", [&](const std::string& name) -> std::optional<std::uint32_t> {
        const auto at = users->find(name);
        return at != users->end() ? std::optional(at->second) : std::nullopt;
      }));
  const std::lock_guard lock(mutex_);
  ranges_ = std::move(ranges);
}

std::uint32_t SubordinateIds::person_of(std::uint32_t uid) const {
  const auto ranges = [&] {
    const std::lock_guard lock(mutex_);
    return ranges_;
  }();
  return derate::person_of(*ranges, uid);
}

}  // namespace derate
