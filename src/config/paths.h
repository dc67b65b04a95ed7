// Paths of the folders, files and sockets that the programs share: run and state directories,
// databases, journal, audit log, tokens, and the daemon's sockets.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace derate {

// For what lives as long as the machine runs: leases, sockets, states. $DERATE_RUN_DIR, else
// /run/derate for root, else $XDG_RUNTIME_DIR/derate, else derate-UID in $TMPDIR or /tmp. Who
// writes there asks make_run_directory() before.
std::string run_directory();
// It is there, and nobody else may exchange what lies in it: the user's own, where it is not named
// by DERATE_RUN_DIR and not root's; among the folders of everybody of mode 0700 besides.
// Errors: no_permission, io; the message says what is wrong with which folder, and what to do.
Result<void> make_run_directory();
// Where states may be found: one's own, and the system's, whose daemon tells everybody.
std::vector<std::string> run_directories();

// For what must outlive a crash: journal, audit log, models. $DERATE_STATE_DIR, else
// /var/lib/derate for root, else $XDG_STATE_HOME/derate, else ~/.local/state/derate, else as
// run_directory(). Who writes there asks check_state_directory() before.
std::string state_directory();
// As make_run_directory(), but a folder in one's home is made only when something is kept in it.
Result<void> check_state_directory();

std::string journal_directory();
std::string audit_file();
// What policies keep of work from job to job; that of simulated GPUs by itself.
std::string model_file();
std::string simulated_model_file();
// Jobs that recur, and their trials.
std::string tune_file();
// Who used how much energy.
std::string usage_file();
// Jobs of a scheduler, and the energy of their GPUs.
std::string job_file();
// Notes of epilogs that did not reach the daemon.
std::string ended_jobs_directory();
// What became of GPUs and tenants, second by second, and what happened.
std::string history_file();
// The tokens that the HTTP API believes.
std::string token_file();
std::string control_socket();
std::string beat_socket();
// Where programs hand over what they count of their launches (docs/progress.md).
std::string launch_socket();
// Where the daemon listens to programs.
std::string client_socket();
// Sockets for a beat, in this order: $DERATE_BEAT_SOCKET, the user's daemon, the system's; of each
// daemon first the socket of this process's user.
std::vector<std::string> beat_sockets();
// Where a program may be answered, in this order: $DERATE_CLIENT_SOCKET, one's own daemon, the
// system's.
std::vector<std::string> client_sockets();
std::string api_socket();  // where derated serves HTTP: run_directory()/api.sock
// Where it may be answered, in this order: $DERATE_API_SOCKET, one's own daemon, the system's.
std::vector<std::string> api_sockets();

}  // namespace derate
