#include "service/records/state_file.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "base/number.h"
#include "base/safe_path.h"
#include "base/text.h"
#include "config/paths.h"

namespace derate {
namespace {

namespace fs = std::filesystem;

constexpr double kStaleSeconds = 5;

double wall_seconds(Clock& clock) { return seconds(clock.wall_now().time_since_epoch()); }

// A governor that died leaves its file behind; a number that another process has now got is told
// from it by the age of the file.
bool alive(pid_t pid) { return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM); }

// A program of that number is one of Derate's, and not another that has got the number since.
bool is_ours(pid_t pid) {
  const auto name = read_file(fmt::format("/proc/{}/comm", pid));
  return name.ok() && name->starts_with("derate");
}

// The governor that wrote this file, or was about to; empty for other files.
std::optional<pid_t> governor_of(const fs::path& file) {
  if (const auto pid = writer_of(file.filename().string())) return *pid;
  if (file.extension() != ".json" && file.extension() != ".sock") return std::nullopt;
  const std::string name = file.stem().string();
  return parse_number<pid_t>(name.substr(name.find_last_of('-') + 1));
}

// What governors that were killed left in the run directory. One that another user has put there
// may be a link to a folder full of other files.
void remove_leftovers() {
  if (!make_run_directory().ok()) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run_directory(), ignored)) {
    const auto pid = governor_of(entry.path());
    if (pid && !alive(*pid)) fs::remove(entry.path(), ignored);
  }
}

double number_of(const Json& json, const char* key) {
  const auto at = json.find(key);
  return at != json.end() && at->is_number() ? at->get<double>() : 0;
}

}  // namespace

StateFile::StateFile(Clock& clock, std::string owner, Log log, const std::string& name)
    : clock_(clock),
      owner_(std::move(owner)),
      path_(run_directory() + "/" +
            (name.empty() ? fmt::format("{}-{}.json", owner_, ::getpid()) : name)),
      log_(std::move(log)),
      next_(clock.now()) {
  remove_leftovers();
}

StateFile::~StateFile() {
  if (written_) ::unlink(path_.c_str());
}

bool StateFile::due() {
  if (clock_.now() < next_) return false;
  next_ = clock_.now() + std::chrono::seconds(1);
  return true;
}

void StateFile::publish(const Snapshot& snapshot) {
  Json state = {
      {"owner", owner_}, {"pid", ::getpid()}, {"time_unix_seconds", wall_seconds(clock_)}};
  state.update(snapshot_json(snapshot));
  auto written = make_run_directory();
  if (written.ok()) written = write_file_atomically(path_, json_text(state, 2) + "\n", Durable::no);
  written_ = written_ || written.ok();
  if (!written.ok() && !complained_) {
    complained_ = true;
    log_.warning("no state for `derate status`: " + written.error().message, {{"path", path_}});
  }
}

namespace {

void read_states_in(const std::string& folder, Clock& clock, std::vector<Json>& states) {
  if (!check_way(folder).ok()) return;  // another user's, who may write anything there
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".json") continue;
    const auto text = read_file(entry.path());
    if (!text.ok()) continue;
    Json state = parse_json(*text);
    if (!state.is_object() || !state.contains("gpus") || !state["gpus"].is_array()) continue;
    const double age = wall_seconds(clock) - number_of(state, "time_unix_seconds");
    if (age > kStaleSeconds || !alive(static_cast<pid_t>(number_of(state, "pid")))) continue;
    states.push_back(std::move(state));
  }
}

}  // namespace

std::vector<std::string> silent_governors(Clock& clock) {
  std::vector<std::string> out;
  std::error_code ignored;
  for (const std::string& folder : run_directories())
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().extension() != ".json") continue;
      const Json state = parse_json(read_file(entry.path()).ok() ? *read_file(entry.path()) : "");
      if (!state.is_object()) continue;
      const double age = wall_seconds(clock) - number_of(state, "time_unix_seconds");
      const auto pid = static_cast<pid_t>(number_of(state, "pid"));
      if (age <= kStaleSeconds || !alive(pid) || !is_ours(pid)) continue;
      out.push_back(
          fmt::format("{}, pid {}, has said nothing for {:.0f} s: what it governs is not "
                      "known",
                      state.value("owner", "") == "run" ? "derate run" : "derated", pid, age));
    }
  return out;
}

std::vector<Json> read_states(Clock& clock) {
  std::vector<Json> states;
  for (const std::string& folder : run_directories()) read_states_in(folder, clock, states);
  return states;
}

}  // namespace derate
