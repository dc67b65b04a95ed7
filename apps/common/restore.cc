#include "restore.h"

#include <fmt/format.h>

#include "base/exit_code.h"
#include "govern/actuator.h"
#include "gpus.h"
#include "output.h"
#include "paths.h"
#include "store/audit.h"

namespace derate::cli {

Result<void> restore_journalled(const JournalEntry& entry, const std::string& who,
                                const std::string& why) {
  SystemClock clock;
  JournalEntry left = entry;
  auto device = open_nvml_gpu(entry.uuid, clock);
  auto restored = device.ok() ? restore_settings(**device, left) : Result<void>(device.error());
  AuditEntry told{clock.wall_now(), who, entry.uuid, "restore", {}, {}, why, {}};
  if (!restored.ok()) told.error = restored.error().message;
  if (const auto kept = AuditLog(audit_file()).append(told); !kept.ok())
    warn("derate: {}\n", kept.error().message);
  TRY(std::move(restored));
  return Journal(journal_directory()).remove(entry.uuid);
}

int restore_process(const std::string& uuid, const std::string& who, const std::string& why) {
  const auto left = Journal(journal_directory()).read(current_life());
  if (!left.ok()) {
    warn("derate: {}\n", left.error().message);
    return exit_code_of(left.error().code);
  }
  for (const JournalEntry& entry : left->entries) {
    if (entry.uuid != uuid) continue;
    if (const auto done = restore_journalled(entry, who, why); !done.ok()) {
      warn("derate: {}: not restored: {}\n", uuid, done.error().message);
      return exit_code_of(done.error().code);
    }
  }
  return exit_code::kOk;
}

std::vector<std::string> left_by(pid_t writer) {
  std::vector<std::string> uuids;
  Journal(journal_directory()).remove_unfinished();
  const auto left = Journal(journal_directory()).read(current_life());
  if (!left.ok()) return uuids;
  for (const JournalEntry& entry : left->entries)
    if (entry.pid == writer) uuids.push_back(entry.uuid);
  return uuids;
}

void set_unusable_aside(const Leftovers& left) {
  const Journal journal(journal_directory());
  journal.remove_unfinished();
  for (const UnusableJournal& bad : left.unusable) {
    const auto moved = journal.set_aside(bad.path);
    warn("derate: journal '{}' {}: {}\n", bad.path, bad.why,
         moved.ok() ? "set aside, not applied" : moved.error().message);
  }
}

}  // namespace derate::cli
