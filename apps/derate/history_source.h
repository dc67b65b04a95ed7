// The source of the history for the verbs that read it (history, savings, events, why, advise
// --history): the daemon, or a file.
#pragma once

#include <string>

#include "api/history_requests.h"
#include "base/clock.h"
#include "base/result.h"

namespace derate::cli {

// The answer: of `file`; else of the daemon; where none runs, of what it has kept, as far
// as this user may read it. Errors: those of the API and of the file; not_found with what to do
// where there is neither.
Result<HistoryAnswer> ask_history(const HistoryRead& request, const std::string& file);
Result<SavingsAnswer> ask_history(const SavingsRead& request, const std::string& file);
// `file`: of energy usage; GPUs are named by index as far as the history next to it knows them.
Result<BillAnswer> ask_history(const BillRead& request, const std::string& file);
Result<EventsAnswer> ask_history(const EventsRead& request, const std::string& file);
Result<WhyAnswer> ask_history(const WhyRead& request, const std::string& file);

// A time of the command line as the daemon understands it, whatever its zone is.
Result<std::string> moment_text(const std::string& option, const std::string& text, WallTime now);

}  // namespace derate::cli
