// Ctrl-C and its kin as a flag that loops look at; a waiting loop is woken (Clock::sleep_until
// returns early).
#pragma once

#include "service/transport/listen.h"

namespace derate {

// From now on what would end a process set the flag (SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1,
// SIGUSR2, SIGALRM): nothing leaves a GPU behind unrestored. SIGCHLD wakes sleepers.
void watch_signals();

// Opens /dev/null for each of standard input, output and error that the caller left closed: the
// next file would get its number, a journal or a lease, and what is meant for people would be
// written there. First thing in main().
void open_standard_files();

// A closed pipe and a file size limit become errors of the write; watch_signals() does this, too.
void ignore_signals_of_writes();

// The last of them since watch_signals(); 0 when none came.
int stop_signal();
// It was sent to this process by another one; a terminal's goes to the whole group by itself.
bool stop_signal_was_sent();
void clear_stop_signal();
// The same, and forgets it: one that comes meanwhile is not lost.
int take_stop_signal();

// Ends a wait for what comes (listen_until) when a signal has come since watch_signals() that no
// wait was ended for: also one that came before the wait began, but after the last look at it.
PollSource signal_source();

}  // namespace derate
