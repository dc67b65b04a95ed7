// The book of jobs and trials as rows of the file that keeps it, and back.
#pragma once

#include <string>
#include <vector>

#include "store/tune_store.h"
#include "tune/trial_registry.h"

namespace derate {

TuneJobRow row_of(const JobEntry& job);
TuneTrialRow row_of(const TrialEntry& trial);

// Everything that was kept into `book`; what cannot be read is left out, and told.
std::vector<std::string> restore_book(TrialRegistry& book, const TuneRows& rows, Instant now);

// Writes what has changed since it was last asked, all of it or nothing; on an error it is written
// with the next. Errors: as TuneStore::put().
Result<void> keep_changes(TrialRegistry& book, TuneStore& store);
// Writes all there is: to a file that was begun anew.
Result<void> keep_all(TrialRegistry& book, TuneStore& store);

}  // namespace derate
