#include "service/answers/config_service.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/json.h"
#include "base/text.h"
#include "config/set_file.h"
#include "config/setting_list.h"
#include "govern/fleet/policy_choice.h"

namespace derate {
namespace {

Result<Settings> read_now(const ConfigSource& source) {
  return settings_of(TRY(read_config_files(source)));
}

// "safety.idle_after_s, governor.gpus"; of many the first.
std::string named(const std::vector<SettingChange>& changes) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(changes.size(), kMost); ++i)
    out += (i > 0 ? ", " : "") + changes[i].key;
  if (changes.size() > kMost) out += fmt::format(" and {} more", changes.size() - kMost);
  return out;
}

// What comes of it, of many the first: "GPU 0 is not governed: ...".
void add_warnings(std::string& sentence, const std::vector<std::string>& warnings) {
  constexpr std::size_t kMost = 4;
  for (std::size_t i = 0; i < std::min(warnings.size(), kMost); ++i) sentence += "; " + warnings[i];
  if (warnings.size() > kMost) sentence += fmt::format("; and {} more", warnings.size() - kMost);
}

// The edited file is not written: who reads of one of its lines would look in vain.
Error without_place(Error error, const std::string& file) {
  if (!error.message.starts_with(file + ":")) return error;
  const auto place = error.message.find(": ");
  if (place != std::string::npos) error.message.erase(0, place + 2);
  error.code = Errc::invalid_argument;
  return error;
}

// What is taken in at a start alone.
std::string at_start_text(const std::vector<SettingChange>& changes) {
  std::vector<SettingChange> waiting;
  std::copy_if(changes.begin(), changes.end(), std::back_inserter(waiting),
               [](const SettingChange& each) { return each.at_start; });
  return waiting.empty() ? "" : fmt::format("; at the next start: {}", named(waiting));
}

std::string sentence(const char* done, const std::vector<SettingChange>& changes) {
  if (changes.empty()) return fmt::format("{}: nothing has changed", done);
  return fmt::format(
      "{}: {} changed: {}{}", done,
      changes.size() == 1 ? "1 setting has" : fmt::format("{} settings have", changes.size()),
      named(changes), at_start_text(changes));
}

ConfigChangesAnswer answer_of_changes(std::string message,
                                      const std::vector<SettingChange>& changes,
                                      std::vector<std::string> warnings) {
  ConfigChangesAnswer out{.message = std::move(message), .warnings = std::move(warnings)};
  for (const SettingChange& each : changes)
    out.changes.push_back({each.key, each.before, each.after, each.at_start});
  return out;
}

// 0755 as others of /etc: `derate run` of ordinary users reads it, too.
Result<void> make_drop_in_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return {};
  const int number = errno;
  return Error{
      number == EACCES || number == EPERM || number == EROFS ? Errc::no_permission : Errc::io,
      fmt::format("cannot make the folder '{}': {}", path, std::strerror(number))};
}

}  // namespace

// A configuration that is valid, and the text that makes it so.
struct ConfigService::Edited {
  std::vector<SettingChange> changes;
  std::vector<std::string> warnings;
  bool rewritten = false;  // the drop-in is to be written
  std::string text;        // of it; empty: it goes
  Settings settings;
};

ConfigService::ConfigService(Clock& clock, CommandRouter& router, ConfigServiceOptions options)
    : clock_(clock), options_(std::move(options)), audit_(options_.audit, "derated", options_.log) {
  router.add<ConfigShow>([this](const auto&, const Peer&) { return show(); });
  router.add<ConfigDiff>([this](const auto&, const Peer&) { return diff(); });
  router.add<ConfigSet>(
      [this](const auto& request, const Peer& peer) { return set(request, caller_name(peer)); });
}

std::string ConfigService::set_file() const {
  return options_.source.folder + "/" + std::string(kSetFile);
}

Result<std::string> ConfigService::reload() {
  differs_.reset();
  const Settings now = TRY(read_now(options_.source));
  const auto changes = setting_changes(options_.in_force(), now);
  const auto warnings = new_warnings(now);
  options_.reload(now);
  std::string out = sentence("the configuration is reloaded", changes);
  add_warnings(out, warnings);
  return out;
}

std::vector<std::string> ConfigService::new_warnings(const Settings& settings) const {
  if (!options_.warnings_of || setting_changes(options_.in_force(), settings).empty()) return {};
  const auto before = options_.warnings_of(options_.in_force());
  auto out = options_.warnings_of(settings);
  std::erase_if(out, [&](const std::string& each) {
    return std::find(before.begin(), before.end(), each) != before.end();
  });
  return out;
}

Result<Json> ConfigService::show() const {
  SettingsAnswer out{.set_file = set_file()};
  for (const SettingEntry& each : list_settings(options_.in_force()))
    out.settings.push_back({each.key, each.value, each.default_value, each.where, each.at_start});
  return answer_json(out);
}

Result<Json> ConfigService::diff() {
  if (!differs_ || clock_.now() - differs_->first >= kReadEvery)
    differs_.emplace(clock_.now(), find_difference());
  if (!differs_->second.ok()) return differs_->second.error();
  return answer_json(*differs_->second);
}

Result<ConfigChangesAnswer> ConfigService::find_difference() const {
  const Settings now = TRY(read_now(options_.source));
  const auto changes = setting_changes(options_.in_force(), now);
  const std::string message = changes.empty() ? "the files say what is in force"
                                              : fmt::format("a reload would change {}{}",
                                                            named(changes), at_start_text(changes));
  return answer_of_changes(message, changes, new_warnings(now));
}

Result<ConfigService::Edited> ConfigService::edit(const ConfigSet& request,
                                                  const std::string& who) const {
  const ConfigEdit words{request.set, request.unset};
  const auto keys = TRY(edited_keys(words));
  if (keys.empty()) return Error{Errc::invalid_argument, "config-set: nothing to set or to unset"};
  if (options_.source.folder.empty())
    return Error{Errc::not_supported, "config-set: this program has no configuration of its own"};
  auto files = TRY(read_config_files(options_.source));
  const std::string path = set_file();
  auto at = std::find_if(files.begin(), files.end(),
                         [&](const ConfigFile& file) { return file.name == path; });
  if (at == files.end()) {
    at = std::find_if(files.begin() + (options_.source.file.empty() ? 0 : 1), files.end(),
                      [&](const ConfigFile& file) { return file.name > path; });
    at = files.insert(at, {path, ""});
  }
  Edited out;
  const std::string before = TRY(edited_set_file(*at, {}));
  const std::string said = TRY(edited_set_file(*at, words));
  out.rewritten = said != before;
  if (!said.empty()) out.text = set_file_head(who, clock_.wall_now()) + said;
  if (out.rewritten) at->text = out.text;
  auto settings = settings_of(files);
  if (!settings.ok()) return without_place(std::move(settings).error(), path);
  out.settings = *std::move(settings);
  const auto set_end = keys.begin() + static_cast<std::ptrdiff_t>(request.set.size());
  for (const SettingEntry& each : list_settings(out.settings)) {
    const bool is_set = std::find(keys.begin(), set_end, each.key) != set_end;
    if (is_set && !each.where.starts_with(path + ":"))
      return Error{Errc::invalid_argument, fmt::format("{}: {} comes after {} and says {}",
                                                       each.key, each.where, kSetFile, each.value)};
  }
  out.changes = setting_changes(options_.in_force(), out.settings);
  out.warnings = new_warnings(out.settings);
  return out;
}

Result<void> ConfigService::write(const Edited& edited) const {
  if (!edited.rewritten) return {};
  if (edited.text.empty()) return remove_file(set_file());
  TRY(make_drop_in_folder(options_.source.folder));
  return write_file_atomically(set_file(), edited.text);
}

void ConfigService::note(const Edited& edited, const std::string& who) {
  for (const SettingChange& each : edited.changes)
    audit_.add({.time = clock_.wall_now(),
                .what = "setting " + each.key,
                .before = each.before,
                .after = each.after,
                .why = "config-set by " + who});
}

Result<Json> ConfigService::set(const ConfigSet& request, const std::string& who) {
  const Edited edited = TRY(edit(request, who));
  if (request.dry_run)
    return answer_json(answer_of_changes(sentence("nothing is written", edited.changes),
                                         edited.changes, edited.warnings));
  TRY(write(edited));
  // From here on the file holds, whatever becomes of this process: the next start reads it.
  differs_.reset();
  options_.reload(edited.settings);
  note(edited, who);
  return answer_json(answer_of_changes(
      sentence(edited.rewritten ? "it is set" : "it was set already", edited.changes),
      edited.changes, edited.warnings));
}

}  // namespace derate
