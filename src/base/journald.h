// The system's journal (journald), which is not the journal of settings found (store/journal.h).
#pragma once

#include <functional>
#include <string>

#include "base/log.h"

struct iovec;

namespace derate {

// Sends one message, each part of which is "NAME=value" without an end of line. Below 0: not sent.
using JournaldSend = std::function<int(const iovec* parts, int count)>;

// To the socket of the journal's native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL), without
// waiting: what sd_journal_sendv(3) sends waits for journald, which may wait for a disk, and a
// guard that waits restores nothing. A message that finds no room is not sent.
JournaldSend journald_socket(const std::string& path = "/run/systemd/journal/socket");

// Whether standard error goes to the journal: its device and inode are those of $JOURNAL_STREAM
// (systemd.exec(5)).
bool stderr_is_journald();

// Sends MESSAGE, PRIORITY (syslog's numbers), SYSLOG_IDENTIFIER, CODE_FILE and CODE_LINE, and each
// field as DERATE_NAME.
JournaldWriter journald_writer(std::string program, JournaldSend send);

}  // namespace derate
