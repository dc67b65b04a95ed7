#include "paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace derate::cli {
namespace {

constexpr const char* kSystemRun = "/run/derate";

// Of the environment; empty when unset.
std::string variable(const char* name) {
  const char* value = ::secure_getenv(name);
  return value != nullptr ? value : "";
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

std::string run_directory() {
  if (const std::string given = variable("DERATE_RUN_DIR"); !given.empty()) return given;
  if (::geteuid() == 0) return kSystemRun;
  if (const std::string xdg = variable("XDG_RUNTIME_DIR"); !xdg.empty()) return xdg + "/derate";
  return fmt::format("/tmp/derate-{}", ::geteuid());
}

std::string state_directory() {
  if (const std::string given = variable("DERATE_STATE_DIR"); !given.empty()) return given;
  if (::geteuid() == 0) return "/var/lib/derate";
  if (const std::string xdg = variable("XDG_STATE_HOME"); !xdg.empty()) return xdg + "/derate";
  if (const std::string home = variable("HOME"); !home.empty())
    return home + "/.local/state/derate";
  return fmt::format("/tmp/derate-{}", ::geteuid());
}

std::string journal_directory() { return state_directory() + "/journal"; }
std::string audit_file() { return state_directory() + "/audit.jsonl"; }
std::string model_file() { return state_directory() + "/models.db"; }
std::string simulated_model_file() { return state_directory() + "/models-simulated.db"; }
std::string tune_file() { return state_directory() + "/tune.db"; }
std::string usage_file() { return state_directory() + "/usage.db"; }
std::string control_socket() { return run_directory() + "/control.sock"; }

std::string client_socket() { return run_directory() + "/client.sock"; }

std::string beat_socket() { return run_directory() + "/beat.sock"; }

std::vector<std::string> beat_sockets() { return sockets("DERATE_BEAT_SOCKET", "beat.sock"); }

std::vector<std::string> client_sockets() { return sockets("DERATE_CLIENT_SOCKET", "client.sock"); }

}  // namespace derate::cli
