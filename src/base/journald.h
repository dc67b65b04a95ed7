// The system's journal (journald), which is not the journal of settings found (store/journal.h).
#pragma once

#include <string>

#include "base/log.h"

struct iovec;

namespace derate {

// sd_journal_sendv(3): sends one message, each part of which is "NAME=value". Not linked here: only
// a program that has libsystemd passes it on. Below 0: not sent.
using JournaldSend = int (*)(const iovec* parts, int count);

// Whether standard error goes to the journal: its device and inode are those of $JOURNAL_STREAM
// (systemd.exec(5)).
bool stderr_is_journald();

// Sends MESSAGE, PRIORITY (syslog's numbers), SYSLOG_IDENTIFIER, CODE_FILE and CODE_LINE, and each
// field as DERATE_NAME.
JournaldWriter journald_writer(std::string program, JournaldSend send);

}  // namespace derate
