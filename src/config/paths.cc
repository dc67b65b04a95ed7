#include "config/paths.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

#include "base/safe_path.h"
#include "base/text.h"
#include "base/unix_address.h"

namespace derate {
namespace {

constexpr const char* kSystemRun = "/run/derate";

// Of the environment; empty when unset.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
}

// A variable of the XDG base directory specification, which has relative paths ignored.
std::string xdg_folder(const char* name) {
  std::string value = variable(name);
  return value.starts_with('/') ? value : "";
}

// A folder, and what led to it.
struct Place {
  enum class By {
    name,       // the user's word, or root's own folders: taken as they are
    home,       // below a folder that the environment says is the user's
    temporary,  // among the folders of everybody
  };
  std::string path;
  By by = By::name;
};

Place run_place() {
  if (std::string given = variable("DERATE_RUN_DIR"); !given.empty()) return {std::move(given)};
  if (::geteuid() == 0) return {kSystemRun};
  if (const std::string xdg = xdg_folder("XDG_RUNTIME_DIR"); !xdg.empty())
    return {xdg + "/derate", Place::By::home};
  return {own_temporary_folder(), Place::By::temporary};
}

Place state_place() {
  if (std::string given = variable("DERATE_STATE_DIR"); !given.empty()) return {std::move(given)};
  if (::geteuid() == 0) return {"/var/lib/derate"};
  if (const std::string xdg = xdg_folder("XDG_STATE_HOME"); !xdg.empty())
    return {xdg + "/derate", Place::By::home};
  if (const std::string home = variable("HOME"); !home.empty())
    return {home + "/.local/state/derate", Place::By::home};
  return {own_temporary_folder(), Place::By::temporary};
}

// Nobody else may change what lies in a folder that is ours; in one among the folders of everybody
// nobody else may look, either.
Result<void> make_own(const Place& place, const char* instead) {
  if (place.by == Place::By::name) return make_folders(place.path);
  const bool temporary = place.by == Place::By::temporary;
  auto made = make_own_folder(place.path, temporary ? S_IRWXG | S_IRWXO : S_IWOTH);
  if (made.ok()) return {};
  Error error = std::move(made).error();
  error.message += fmt::format("; or name a folder of your own by {}", instead);
  return error;
}

// The one that the environment names, then those of the run directories.
std::vector<std::string> sockets(const char* named, const char* file) {
  std::vector<std::string> out;
  if (std::string given = variable(named); !given.empty()) out.push_back(std::move(given));
  for (const std::string& folder : run_directories()) out.push_back(folder + "/" + file);
  return out;
}

}  // namespace

std::vector<std::string> run_directories() {
  std::vector<std::string> out{run_directory()};
  if (variable("DERATE_RUN_DIR").empty() && out.front() != kSystemRun) out.push_back(kSystemRun);
  return out;
}

std::string run_directory() { return run_place().path; }

std::string state_directory() { return state_place().path; }

Result<void> make_run_directory() { return make_own(run_place(), "DERATE_RUN_DIR"); }

Result<void> check_state_directory() {
  const Place place = state_place();
  struct stat found {};
  const bool there = ::lstat(place.path.c_str(), &found) == 0;
  if (!there && place.by != Place::By::temporary) return check_way(place.path);
  if (place.by == Place::By::name) return check_way(place.path);
  return make_own(place, "DERATE_STATE_DIR");
}

std::string journal_directory() { return state_directory() + "/journal"; }
std::string audit_file() { return state_directory() + "/audit.jsonl"; }
std::string model_file() { return state_directory() + "/models.db"; }
std::string simulated_model_file() { return state_directory() + "/models-simulated.db"; }
std::string tune_file() { return state_directory() + "/tune.db"; }
std::string usage_file() { return state_directory() + "/usage.db"; }
std::string job_file() { return state_directory() + "/jobs.db"; }
std::string ended_jobs_directory() { return run_directory() + "/ended-jobs"; }
std::string history_file() { return state_directory() + "/history.db"; }
std::string token_file() { return state_directory() + "/tokens.json"; }
std::string control_socket() { return run_directory() + "/control.sock"; }

std::string client_socket() { return run_directory() + "/client.sock"; }

std::string beat_socket() { return run_directory() + "/beat.sock"; }

std::string launch_socket() { return run_directory() + "/launches.sock"; }

std::vector<std::string> beat_sockets() {
  std::vector<std::string> out;
  if (std::string given = variable("DERATE_BEAT_SOCKET"); !given.empty()) out.push_back(given);
  for (const std::string& folder : run_directories()) {
    out.push_back(own_beat_socket(folder, ::geteuid()));
    out.push_back(folder + "/beat.sock");
  }
  return out;
}

std::vector<std::string> client_sockets() { return sockets("DERATE_CLIENT_SOCKET", "client.sock"); }

std::string api_socket() { return run_directory() + "/api.sock"; }

std::vector<std::string> api_sockets() { return sockets("DERATE_API_SOCKET", "api.sock"); }

}  // namespace derate
