#include "govern/fleet/restore_left.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/exit_code.h"
#include "config/paths.h"
#include "device/knob_control.h"
#include "govern/guard.h"
#include "govern/lease.h"
#include "govern/restore_settings.h"
#include "store/audit.h"

namespace derate {
namespace {

std::string found_text(const JournalEntry& entry) {
  std::vector<std::string> out;
  for (const auto& [name, knob] : entry.knobs) {
    const KnobInfo* row = find_knob(knobs_of(entry.domain.kind), name);
    if (!knob.written) continue;
    if (row != nullptr && row->restore == KnobInfo::Restore::configured)
      out.push_back(row->words + std::string(knob.found ? " as configured" : " reset"));
    else if (row != nullptr && knob.found)
      out.push_back(fmt::format("{} {:.0f} {}", row->words, knob.found->highest, row->unit));
    else if (knob.found)
      out.push_back(fmt::format("{} {:g}", name, knob.found->highest));
  }
  return fmt::format("{}", fmt::join(out, ", "));
}

Restored refused(const JournalEntry& entry, const Error& why) {
  const bool governed =
      why.code == Errc::busy && lease_holder(run_directory(), short_name(entry.domain)).lives;
  return {entry.domain, governed ? Restored::Outcome::governed : Restored::Outcome::not_restored,
          why.message};
}

}  // namespace

Result<void> restore_journalled(const JournalEntry& entry, const OpenToRestore& open,
                                const std::string& who, const std::string& why, const Log& log) {
  SystemClock clock;
  JournalEntry left = entry;
  auto device = open(entry.domain);
  auto restored = device.ok() ? restore_settings(**device, left) : Result<void>(device.error());
  AuditEntry told{clock.wall_now(), who, entry.domain, "restore", {}, {}, why, {}};
  if (!restored.ok()) told.error = restored.error().message;
  if (const auto kept = AuditLog(audit_file()).append(told); !kept.ok())
    log.error("no audit log: " + kept.error().message, {{"gpu", entry.domain.name}});
  TRY(std::move(restored));
  return Journal(journal_directory()).remove(entry.domain);
}

int restore_process(const DomainId& domain, const OpenToRestore& open, const std::string& who,
                    const std::string& why, const Log& log) {
  const auto left = Journal(journal_directory()).read(current_boot());
  if (!left.ok()) {
    log.error(left.error().message, {{"gpu", domain.name}});
    return exit_code_of(left.error().code);
  }
  for (const JournalEntry& entry : left->entries) {
    if (entry.domain != domain) continue;
    if (const auto done = restore_journalled(entry, open, who, why, log); !done.ok()) {
      log.error(fmt::format("{}: not restored: {}", short_name(domain), done.error().message),
                {{"gpu", domain.name}});
      return exit_code_of(done.error().code);
    }
  }
  return exit_code::kOk;
}

std::vector<DomainId> left_by(pid_t writer) {
  std::vector<DomainId> out;
  Journal(journal_directory()).remove_unfinished();
  const auto left = Journal(journal_directory()).read(current_boot());
  if (!left.ok()) return out;
  for (const JournalEntry& entry : left->entries)
    if (entry.pid == writer) out.push_back(entry.domain);
  return out;
}

std::map<std::string, std::string> left_by_nobody() {
  std::map<std::string, std::string> out;
  const auto left = Journal(journal_directory()).read(current_boot());
  if (!left.ok()) return out;
  for (const JournalEntry& entry : left->entries)
    if (!lease_is_held(run_directory(), short_name(entry.domain)))
      out[short_name(entry.domain)] = fmt::format("{}, pid {}", entry.owner, entry.pid);
  return out;
}

Result<std::vector<Restored>> restore_left(const RestoreRequest& request, Clock& clock) {
  const Instant deadline = clock.now() + request.wait;
  const Journal journal(journal_directory());
  const Leftovers left = TRY(journal.read(current_boot()));
  set_unusable_aside(left, journal, run_directory(), request.log);
  std::vector<Restored> out;
  std::vector<UniqueFd> leases;  // held until all is done, by the restoring processes too
  std::vector<DomainId> domains;
  for (const JournalEntry& entry : left.entries) {
    if (!short_name(entry.domain).starts_with(request.gpus)) continue;
    auto lease = await_lease(clock, run_directory(), short_name(entry.domain), request.who,
                             deadline, request.alive);
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
      domains.push_back(entry.domain);
    } else {
      out.push_back(refused(entry, lease.error()));
    }
  }
  const RestoreOutcome done = restore_side_by_side(
      domains,
      [&](const DomainId& domain) {
        return restore_process(domain, request.open, request.who, request.why, request.log);
      },
      request.patience, clock, request.alive);
  for (const JournalEntry& entry : left.entries) {
    const auto is = [&](const std::vector<DomainId>& list) {
      return std::find(list.begin(), list.end(), entry.domain) != list.end();
    };
    if (is(done.restored))
      out.push_back({entry.domain, Restored::Outcome::restored, found_text(entry)});
    if (is(done.not_restored))
      out.push_back(
          {entry.domain, Restored::Outcome::not_restored, "its journal is kept: try again"});
  }
  return out;
}

int exit_code_of(std::span<const Restored> all) {
  const auto any = [&](Restored::Outcome outcome) {
    return std::any_of(all.begin(), all.end(),
                       [&](const Restored& one) { return one.outcome == outcome; });
  };
  if (any(Restored::Outcome::not_restored)) return exit_code::kFailure;
  return any(Restored::Outcome::governed) ? exit_code_of(Errc::busy) : exit_code::kOk;
}

void set_unusable_aside(const Leftovers& left, const Journal& journal,
                        const std::string& run_folder, const Log& log,
                        const std::function<bool(const DomainId&)>& is_ours) {
  journal.remove_unfinished();
  for (const UnusableJournal& bad : left.unusable) {
    const std::string name = std::filesystem::path(bad.path).stem();
    if (!is_ours(parse_domain(name)) && lease_is_held(run_folder, name)) {
      log.warning(fmt::format("journal '{}' {}: left alone, since {} governs the GPU", bad.path,
                              bad.why, describe(lease_holder(run_folder, name))),
                  {{"path", bad.path}});
      continue;
    }
    const auto moved = journal.set_aside(bad.path);
    log.error(fmt::format("journal '{}' {}: {}", bad.path, bad.why,
                          moved.ok() ? "set aside, not applied" : moved.error().message),
              {{"path", bad.path}});
  }
}

}  // namespace derate
