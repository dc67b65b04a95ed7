#include "store/journal.h"

#include <fmt/format.h>
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
#include "store/token_file.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

// Version 1 (Derate 0.1.0) had the knobs of a GPU as fields of the entry; version 2 had no
// checksum.
constexpr int kVersion = 3, kWithoutChecksum = 2, kFirstVersion = 1;
constexpr const char *kChecksum = "sha256", *kStart = "pid_started";
constexpr double kTicksMost = 1e15;  // a double holds each integer up to this
constexpr double kValueMost = 1e12;  // of a knob that has no row here

// Of a JSON object: what must be there, of its type. A journal decides about hardware, so nothing
// in it is guessed.
struct Fields {
  const Json& json;

  const Json* find(const std::string& key) const {
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
  // From `least` to `most`.
  Result<double> number(const char* key, double least, double most) const {
    const Json* at = find(key);
    const double value = at != nullptr && at->is_number() ? at->get<double>() : NAN;
    if (!(value >= least && value <= most))
      return Error{Errc::bad_data,
                   fmt::format("{}: wanted a number from {:.0f} to {:.0f}", key, least, most)};
    return value;
  }
  Result<const Json*> object(const char* key) const {
    const Json* at = find(key);
    if (at == nullptr || !at->is_object())
      return Error{Errc::bad_data, std::string(key) + ": wanted an object"};
    return at;
  }
};

// Within what the knob's row allows.
Result<void> check_value(const DomainId& domain, const std::string& knob, const KnobValue& value) {
  const KnobInfo* row = find_knob(knobs_of(domain.kind), knob);
  const double most = row != nullptr ? row->most : kValueMost;
  const bool positive = row == nullptr || value.lowest > 0;
  if (positive && std::abs(value.lowest) <= most && value.highest <= most &&
      value.lowest <= value.highest)
    return {};
  return Error{Errc::bad_data,
               fmt::format("{}: wanted a number in (0, {:.0f}], or a range of two", knob, most)};
}

// A number, or an array of two.
Result<KnobValue> parse_value(const std::string& knob, const Json& json) {
  if (json.is_number()) return one_value(json.get<double>());
  if (json.is_array() && json.size() == 2 && json[0].is_number() && json[1].is_number())
    return KnobValue{json[0].get<double>(), json[1].get<double>()};
  return Error{Errc::bad_data, knob + ": wanted a number, or a range of two"};
}

Json json_of(const KnobValue& value) {
  if (value.lowest == value.highest) return value.lowest;
  return Json::array({value.lowest, value.highest});
}

Result<void> parse_knobs(const Fields& fields, JournalEntry& out) {
  const Json* knobs = TRY(fields.object("knobs"));
  for (const auto& [name, json] : knobs->items()) {
    if (!json.is_object()) return Error{Errc::bad_data, name + ": wanted an object"};
    const Fields of{json};
    JournalKnob& knob = out.knobs[name];
    knob.written = TRY(of.flag("written"));
    if (const Json* found = of.find("found")) {
      knob.found = TRY(parse_value(name, *found));
      TRY(check_value(out.domain, name, *knob.found));
    }
  }
  return {};
}

// What 0.1.0 wrote.
Result<void> parse_first_version(const Fields& fields, JournalEntry& out) {
  out.knobs[kClockLock].written = TRY(fields.flag("clock_written"));
  out.knobs[kPowerLimit].written = TRY(fields.flag("power_written"));
  const Json* settings = TRY(fields.object("found"));
  const Fields found{*settings};
  for (const char* knob : {kPowerLimit, kApplicationClock, kApplicationMemoryClock})
    if (const Json* at = found.find(knob)) out.knobs[knob].found = TRY(parse_value(knob, *at));
  const Json *lowest = found.find("locked_lowest_mhz"), *highest = found.find("locked_highest_mhz");
  if (lowest != nullptr || highest != nullptr) {
    const Json range = {lowest != nullptr ? *lowest : Json(),
                        highest != nullptr ? *highest : Json()};
    out.knobs[kClockLock].found = TRY(parse_value("locked_lowest_mhz, locked_highest_mhz", range));
  }
  for (const auto& [name, knob] : out.knobs)
    if (knob.found) TRY(check_value(out.domain, name, *knob.found));
  return {};
}

bool is_file_name(const std::string& name) {
  return !name.empty() && name.size() < 100 && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) {
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

Result<JournalEntry> read_whole(const std::string& path) {
  if (const auto why = foreign_file(path)) return Error{Errc::bad_data, *why};
  JournalEntry entry = TRY(parse_journal(TRY(read_file(path))));
  if (fs::path(path).stem() != short_name(entry.domain))
    return Error{Errc::bad_data, "is about another, " + to_string(entry.domain)};
  return entry;
}

// Returns why the entry is not of this boot or driver load; null: it is.
const char* other_life(const JournalEntry& entry, const BootIdentity& now) {
  if (entry.life.boot_id != now.boot_id)
    return "is of an earlier boot: what it restores is gone already";
  if (entry.domain.kind == kGpuKind && entry.life.driver_load != now.driver_load)
    return "is of an earlier load of the driver: what it restores is gone";
  return nullptr;
}

// The checksum of the document without its checksum, printed on one line.
std::string checksum_of(const Json& json) {
  Json bare = json;
  bare.erase(kChecksum);
  return token_hash(json_text(bare));  // SHA-256, as hexadecimal digits
}

// Decides by the file's name only.
bool names_a_domain(const std::string& name) {
  const DomainId domain = parse_domain(name);
  return domain.kind != kGpuKind || domain.name.starts_with("GPU-");
}

constexpr std::string_view kEntryEnd = ".json", kAsideEnd = ".aside";

// Renames the file. If an earlier file of that name cannot be replaced because one of the two is a
// folder, the earlier one gets a number.
Result<void> move_to(const std::string& from, const std::string& to) {
  constexpr int kMostKept = 9;
  if (std::rename(from.c_str(), to.c_str()) == 0) return {};
  const auto in_the_way = [] {
    return errno == EISDIR || errno == ENOTDIR || errno == ENOTEMPTY || errno == EEXIST;
  };
  for (int number = 1; in_the_way() && number <= kMostKept; ++number)
    if (std::rename(to.c_str(), fmt::format("{}.{}", to, number).c_str()) == 0 &&
        std::rename(from.c_str(), to.c_str()) == 0)
      return {};
  return system_error("cannot rename '" + from + "'");
}

// "GPU-1.json.BOOT.aside", for a known boot.
std::string lost_end(const BootIdentity& now) { return "." + now.boot_id + std::string(kAsideEnd); }

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

std::optional<KnobValue> JournalEntry::found(std::string_view knob) const {
  const auto at = knobs.find(knob);
  return at == knobs.end() ? std::nullopt : at->second.found;
}

bool JournalEntry::is_written(std::string_view knob) const {
  const auto at = knobs.find(knob);
  return at != knobs.end() && at->second.written;
}

bool JournalEntry::any_written() const {
  return std::any_of(knobs.begin(), knobs.end(),
                     [](const auto& each) { return each.second.written; });
}

std::string journal_text(const JournalEntry& entry) {
  Json knobs = Json::object();
  for (const auto& [name, knob] : entry.knobs) {
    Json& json = knobs[name] = {{"written", knob.written}};
    if (knob.found) json["found"] = json_of(*knob.found);
  }
  Json json = {{"version", kVersion},
               {"domain", to_string(entry.domain)},
               {"boot_id", entry.life.boot_id},
               {"driver_load", entry.life.driver_load},
               {"owner", entry.owner},
               {"pid", entry.pid},
               {"time_unix_seconds", seconds(entry.time.time_since_epoch())},
               {"knobs", std::move(knobs)}};
  if (entry.pid_started != 0) json[kStart] = entry.pid_started;
  json[kChecksum] = checksum_of(json);
  return json_text(json, 2) + "\n";
}

Result<JournalEntry> parse_journal(std::string_view text) {
  const Json json = parse_json(text);
  if (!json.is_object()) return Error{Errc::bad_data, "is not whole"};
  const Fields fields{json};
  const Json* version = fields.find("version");
  const bool first = version != nullptr && *version == kFirstVersion;
  if (version == nullptr || (!first && *version != kVersion && *version != kWithoutChecksum))
    return Error{Errc::bad_data, "is of a version that this program does not know"};
  // If an earlier version has fields of this version only, its version number was changed.
  const bool changed = *version != kVersion ? json.contains(kChecksum) || json.contains(kStart)
                                            : TRY(fields.text(kChecksum)) != checksum_of(json);
  if (changed)
    return Error{Errc::bad_data, "has a wrong checksum: the file was changed after it was written"};
  JournalEntry out;
  const std::string name = TRY(fields.text(first ? "uuid" : "domain"));
  out.domain = first ? gpu_domain(name) : parse_domain(name);
  out.life.boot_id = TRY(fields.text("boot_id"));
  out.life.driver_load = TRY(fields.text("driver_load"));
  out.owner = TRY(fields.text("owner"));
  const double pid = TRY(fields.number("pid", 0, std::numeric_limits<pid_t>::max()));
  if (pid != std::floor(pid)) return Error{Errc::bad_data, "pid: wanted the number of a process"};
  out.pid = static_cast<pid_t>(pid);
  if (fields.find(kStart) != nullptr)
    out.pid_started = static_cast<std::uint64_t>(TRY(fields.number(kStart, 0, kTicksMost)));
  constexpr double kSecondsMax = 9e9;  // what nanoseconds in 64 bits hold
  out.time = WallTime(from_seconds(TRY(fields.number("time_unix_seconds", 0, kSecondsMax))));
  auto knobs = first ? parse_first_version(fields, out) : parse_knobs(fields, out);
  TRY(std::move(knobs));
  return out;
}

std::string Journal::copy_of(const std::string& path) const {
  return copies_ + "/" + fs::path(path).filename().string();
}

Result<void> Journal::write(const JournalEntry& entry) const {
  if (!is_file_name(entry.domain.kind) || !is_file_name(entry.domain.name))
    return Error{Errc::invalid_argument,
                 "'" + to_string(entry.domain) + "': cannot be a file's name"};
  TRY(make_folders(folder_));
  const std::string path = path_of(entry.domain), text = journal_text(entry);
  TRY(write_file_atomically(path, text));
  if (copies_.empty()) return {};
  // No copy is better than an old one.
  if (!make_folders(copies_).ok() || !write_file_atomically(copy_of(path), text, Durable::no).ok())
    (void)::unlink(copy_of(path).c_str());
  return {};
}

// Removes the copy first: a copy without its entry is not read, but an old copy might be read with
// a later entry.
Result<void> Journal::remove(const DomainId& domain) const {
  const std::string path = path_of(domain);
  if (!copies_.empty()) (void)::unlink(copy_of(path).c_str());
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  // A folder has taken the place of the file, which was restored from the copy.
  if ((errno == EISDIR || errno == EPERM) && move_to(path, path + std::string(kAsideEnd)).ok())
    return {};
  return system_error("cannot remove '" + path + "'");
}

void Journal::read_one(const std::string& path, const BootIdentity& now, Leftovers& out) const {
  auto entry = read_whole(path);
  std::string why = entry.ok() ? "" : entry.error().message;
  if (!entry.ok() && !copies_.empty()) {
    auto copy = read_whole(copy_of(path));
    if (copy.ok() && other_life(*copy, now) == nullptr) {
      out.notes.push_back(fmt::format("journal '{}' {}: its second copy is used", path, why));
      entry = std::move(copy);
    }
  }
  if (!entry.ok()) {
    const bool may_matter = names_a_domain(fs::path(path).stem());
    return out.unusable.push_back({path, std::move(why), may_matter});
  }
  if (const char* const other = other_life(*entry, now); other != nullptr)
    return out.unusable.push_back({path, other, false});
  out.entries.push_back(*std::move(entry));
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
  for (const auto& file : files)
    if (file.path().extension() == kEntryEnd) read_one(file.path(), now, out);
  std::sort(out.entries.begin(), out.entries.end(),
            [](const JournalEntry& a, const JournalEntry& b) { return a.domain < b.domain; });
  std::sort(out.unusable.begin(), out.unusable.end(),
            [](const UnusableJournal& a, const UnusableJournal& b) { return a.path < b.path; });
  return out;
}

std::optional<JournalEntry> Journal::find(const DomainId& domain, const BootIdentity& now) const {
  std::vector<std::string> paths{path_of(domain)};
  if (!copies_.empty()) paths.insert(paths.begin(), copy_of(paths[0]));
  for (const std::string& path : paths)
    if (auto entry = read_whole(path); entry.ok() && other_life(*entry, now) == nullptr)
      return *std::move(entry);
  return std::nullopt;
}

void Journal::remove_unfinished() const {
  std::vector<fs::path> gone;
  for (const std::string& folder : {folder_, copies_}) {
    std::error_code ignored;
    if (folder.empty()) continue;
    for (const auto& file : fs::directory_iterator(folder, ignored)) {
      const auto pid = writer_of(file.path().filename().string());
      if (pid && ::kill(*pid, 0) != 0 && errno == ESRCH) gone.push_back(file.path());
    }
  }
  std::error_code ignored;
  for (const fs::path& path : gone) fs::remove(path, ignored);
}

Result<void> Journal::set_aside(const UnusableJournal& bad, const BootIdentity& now) const {
  return move_to(bad.path, bad.path + (bad.may_matter ? lost_end(now) : std::string(kAsideEnd)));
}

std::vector<LostJournal> Journal::lost(const BootIdentity& now) const {
  std::vector<LostJournal> out;
  std::error_code ignored;
  const std::string end = std::string(kEntryEnd) + lost_end(now);
  for (const auto& file : fs::directory_iterator(folder_, ignored)) {
    std::string name = file.path().filename();
    if (!name.ends_with(end)) continue;
    name.resize(name.size() - end.size());
    out.push_back({parse_domain(name), file.path()});
  }
  if (const auto left = read(now); left.ok())
    for (const UnusableJournal& bad : left->unusable)
      if (bad.may_matter)
        out.push_back({parse_domain(fs::path(bad.path).stem().string()), bad.path});
  std::sort(out.begin(), out.end(),
            [](const LostJournal& a, const LostJournal& b) { return a.path < b.path; });
  return out;
}

Result<void> Journal::settle(const LostJournal& lost) const {
  return move_to(lost.path, path_of(lost.domain) + std::string(kAsideEnd));
}

}  // namespace derate
