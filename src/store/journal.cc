#include "store/journal.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr int kVersion = 1;

template <class Q>
void put(Json& json, const char* key, const std::optional<Q>& quantity) {
  if (quantity) json[key] = quantity->value();
}

// Of a JSON object: what must be there, of its type. A journal decides about hardware, so nothing
// in it is guessed.
struct Fields {
  const Json& json;

  const Json* find(const char* key) const {
    const auto at = json.find(key);
    return at == json.end() ? nullptr : &*at;
  }
  Result<std::string> text(const char* key) const {
    const Json* at = find(key);
    if (at == nullptr || !at->is_string())
      return Error{Errc::bad_data, std::string(key) + ": wanted a text"};
    return at->get<std::string>();
  }
  Result<bool> flag(const char* key) const {
    const Json* at = find(key);
    if (at == nullptr || !at->is_boolean())
      return Error{Errc::bad_data, std::string(key) + ": wanted true or false"};
    return at->get<bool>();
  }
  // Within what any GPU may have; empty when the key is absent.
  template <class Q>
  Result<std::optional<Q>> quantity(const char* key, double highest) const {
    const Json* at = find(key);
    if (at == nullptr) return std::optional<Q>{};
    const double value = at->is_number() ? at->get<double>() : -1;
    if (!(value > 0 && value <= highest))
      return Error{Errc::bad_data, std::string(key) + ": wanted a number in (0, " +
                                       std::to_string(static_cast<int>(highest)) + "]"};
    return std::optional<Q>(Q(value));
  }
};

constexpr double kWattsMax = 10'000, kMegahertzMax = 10'000;

bool is_file_name(const std::string& uuid) {
  return !uuid.empty() && uuid.size() < 200 && uuid.front() != '.' &&
         std::all_of(uuid.begin(), uuid.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
         });
}

Error system_error(const std::string& what) {
  const int number = errno;
  const bool denied = number == EACCES || number == EPERM || number == EROFS;
  return {denied ? Errc::no_permission : Errc::io, what + ": " + std::strerror(number)};
}

// Whoever else may write a journal could have Derate set anything on a GPU.
std::optional<std::string> foreign_file(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return std::string("cannot be looked at");
  if (!S_ISREG(info.st_mode)) return std::string("is no plain file");
  if (info.st_uid != 0 && info.st_uid != ::geteuid())
    return "belongs to user " + std::to_string(info.st_uid);
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0) return std::string("may be written by others");
  return std::nullopt;
}

Result<JournalEntry> read_entry(const std::string& path, const BootIdentity& now) {
  if (const auto why = foreign_file(path)) return Error{Errc::bad_data, *why};
  JournalEntry entry = TRY(parse_journal(TRY(read_file(path))));
  if (fs::path(path).stem() != entry.uuid)
    return Error{Errc::bad_data, "is about another GPU, " + entry.uuid};
  if (entry.life.boot_id != now.boot_id)
    return Error{Errc::bad_data, "is of an earlier boot: what it restores is gone already"};
  if (entry.life.driver_load != now.driver_load)
    return Error{Errc::bad_data, "is of an earlier load of the driver: what it restores is gone"};
  return entry;
}

}  // namespace

BootIdentity current_boot() {
  BootIdentity out;
  if (const auto text = read_file("/proc/sys/kernel/random/boot_id"); text.ok())
    out.boot_id = trim(text->substr(0, text->find('\n')));
  // The module's folder in sysfs gets a new inode each time that the module is loaded.
  struct stat info {};
  if (::stat("/sys/module/nvidia", &info) == 0) out.driver_load = std::to_string(info.st_ino);
  return out;
}

std::string journal_text(const JournalEntry& entry) {
  Json found = Json::object();
  put(found, "power_limit_watts", entry.found.power_limit);
  put(found, "application_sm_clock_mhz", entry.found.application_sm_clock);
  put(found, "application_memory_clock_mhz", entry.found.application_memory_clock);
  if (entry.found_lock) {
    found["locked_lowest_mhz"] = entry.found_lock->lowest.value();
    found["locked_highest_mhz"] = entry.found_lock->highest.value();
  }
  const Json json = {{"version", kVersion},
                     {"uuid", entry.uuid},
                     {"boot_id", entry.life.boot_id},
                     {"driver_load", entry.life.driver_load},
                     {"owner", entry.owner},
                     {"pid", entry.pid},
                     {"time_unix_seconds", seconds(entry.time.time_since_epoch())},
                     {"found", std::move(found)},
                     {"clock_written", entry.clock_written},
                     {"power_written", entry.power_written}};
  return json_text(json, 2) + "\n";
}

Result<JournalEntry> parse_journal(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return Error{Errc::bad_data, "is not whole"};
  const Fields fields{json};
  const Json* version = fields.find("version");
  if (version == nullptr || *version != kVersion)
    return Error{Errc::bad_data, "is of a version that this program does not know"};
  JournalEntry out;
  out.uuid = TRY(fields.text("uuid"));
  out.life.boot_id = TRY(fields.text("boot_id"));
  out.life.driver_load = TRY(fields.text("driver_load"));
  out.owner = TRY(fields.text("owner"));
  out.clock_written = TRY(fields.flag("clock_written"));
  out.power_written = TRY(fields.flag("power_written"));
  const Json* pid = fields.find("pid");
  const auto number = pid != nullptr && pid->is_number_integer() ? pid->get<std::int64_t>() : -1;
  if (number < 0 || number > std::numeric_limits<pid_t>::max())
    return Error{Errc::bad_data, "pid: wanted the number of a process"};
  out.pid = static_cast<pid_t>(number);
  const Json* time = fields.find("time_unix_seconds");
  const double when = time != nullptr && time->is_number() ? time->get<double>() : -1;
  constexpr double kSecondsMax = 9e9;  // what nanoseconds in 64 bits hold
  if (!(when >= 0 && when < kSecondsMax))
    return Error{Errc::bad_data, "time_unix_seconds: wanted seconds since 1970"};
  out.time = WallTime(from_seconds(when));

  const Json* found = fields.find("found");
  if (found == nullptr || !found->is_object())
    return Error{Errc::bad_data, "found: wanted the settings"};
  const Fields settings{*found};
  out.found.power_limit = TRY(settings.quantity<Watts>("power_limit_watts", kWattsMax));
  out.found.application_sm_clock =
      TRY(settings.quantity<Megahertz>("application_sm_clock_mhz", kMegahertzMax));
  out.found.application_memory_clock =
      TRY(settings.quantity<Megahertz>("application_memory_clock_mhz", kMegahertzMax));
  const auto low = TRY(settings.quantity<Megahertz>("locked_lowest_mhz", kMegahertzMax));
  const auto high = TRY(settings.quantity<Megahertz>("locked_highest_mhz", kMegahertzMax));
  if (low.has_value() != high.has_value() || (low && *low > *high))
    return Error{Errc::bad_data, "locked_lowest_mhz, locked_highest_mhz: wanted a range"};
  if (low) out.found_lock = ClockRange{*low, *high};
  return out;
}

Result<void> Journal::write(const JournalEntry& entry) const {
  if (!is_file_name(entry.uuid))
    return Error{Errc::invalid_argument, "UUID '" + entry.uuid + "': cannot be a file's name"};
  TRY(make_folders(folder_));
  return write_file_atomically(path_of(entry.uuid), journal_text(entry));
}

Result<void> Journal::remove(const std::string& uuid) const {
  const std::string path = path_of(uuid);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return system_error("cannot remove '" + path + "'");
  return {};
}

Result<Leftovers> Journal::read(const BootIdentity& now) const {
  Leftovers out;
  std::error_code error;
  if (!fs::exists(folder_, error) && !error) return out;
  fs::directory_iterator files(folder_, error);
  if (error) {
    errno = error.value();
    return system_error("cannot read '" + folder_ + "'");
  }
  for (const auto& file : files) {
    const std::string path = file.path();
    if (file.path().extension() != ".json") continue;
    auto entry = read_entry(path, now);
    if (entry.ok())
      out.entries.push_back(*std::move(entry));
    else
      out.unusable.push_back({path, entry.error().message});
  }
  std::sort(out.entries.begin(), out.entries.end(),
            [](const JournalEntry& a, const JournalEntry& b) { return a.uuid < b.uuid; });
  std::sort(out.unusable.begin(), out.unusable.end(),
            [](const UnusableJournal& a, const UnusableJournal& b) { return a.path < b.path; });
  return out;
}

void Journal::remove_unfinished() const {
  std::error_code ignored;
  std::vector<fs::path> gone;
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    const auto pid = writer_of(file.path().filename().string());
    if (pid && ::kill(*pid, 0) != 0 && errno == ESRCH) gone.push_back(file.path());
  }
  for (const fs::path& path : gone) fs::remove(path, ignored);
}

Result<void> Journal::set_aside(const std::string& path) const {
  const std::string aside = path + ".aside";
  if (std::rename(path.c_str(), aside.c_str()) != 0)
    return system_error("cannot rename '" + path + "'");
  return {};
}

}  // namespace derate
