#include "govern/fleet/restore_left.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/exit_code.h"
#include "base/text.h"
#include "config/paths.h"
#include "device/knob_control.h"
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

// If the run folder is full or read-only, no process can take a lease. If the lease's file does not
// exist either, no governor holds the domain.
bool free_without_lease(const Error& why, const std::string& name) {
  return why.code == Errc::io && !lease_is_held(run_directory(), name);
}

// Resets the knobs that could not be read when they were found; a user may have set the others.
Result<void> reset_domain(const DomainId& domain, const RestoreRequest& request) {
  const auto device = TRY(request.open(domain));
  std::optional<Error> failure;
  for (const KnobInfo& knob : device->knobs()) {
    if (knob.restore != KnobInfo::Restore::configured) continue;
    auto done = reset_offered_knob(*device, knob);
    if (!done.ok() && !failure) failure = std::move(done).error();
  }
  if (failure) return *std::move(failure);
  return {};
}

// The second part of a reset, which may wait for a disk.
int settle_reset(const LostJournal& lost, const RestoreRequest& request, Result<void> done) {
  if (done.ok()) done = machine_journal().settle(lost).with("reset, but its journal stays");
  SystemClock clock;
  (void)AuditLog(audit_file())
      .append({clock.wall_now(),
               request.who,
               lost.domain,
               "reset",
               {},
               {},
               request.why + "; its journal could not be used",
               done.ok() ? "" : done.error().message})
      .ok();
  if (done.ok()) return exit_code::kOk;
  request.log.error(fmt::format("{}: not reset: {}", short_name(lost.domain), done.error().message),
                    {{"gpu", lost.domain.name}});
  return exit_code_of(done.error().code);
}

RestoreStep reset_process(const LostJournal& lost, const RestoreRequest& request) {
  auto done = reset_domain(lost.domain, request);
  return {exit_code::kOk,
          [lost, &request, done = std::move(done)] { return settle_reset(lost, request, done); }};
}

struct Asker {
  std::string who, why;
};

// The second part of a restore, which may wait for a disk. The journal comes first, so that it does
// not wait for the audit log.
int settle_restored(const DomainId& domain, Result<void> restored, const Asker& asker,
                    const Log& log) {
  SystemClock clock;
  AuditEntry told{clock.wall_now(), asker.who, domain, "restore", {}, {}, asker.why, {}};
  if (!restored.ok())
    told.error = restored.error().message;
  else
    restored = machine_journal().remove(domain);
  if (const auto kept = AuditLog(audit_file()).append(told); !kept.ok())
    log.error("no audit log: " + kept.error().message, {{"gpu", domain.name}});
  if (restored.ok()) return exit_code::kOk;
  log.error(fmt::format("{}: not restored: {}", short_name(domain), restored.error().message),
            {{"gpu", domain.name}});
  return exit_code_of(restored.error().code);
}

// Resets domains under their leases, as restoring does.
void reset_lost(const RestoreRequest& request, Clock& clock, std::vector<Restored>& out) {
  std::vector<UniqueFd> leases;
  std::map<DomainId, LostJournal> all;
  std::vector<DomainId> domains;
  for (const LostJournal& lost : machine_journal().lost(current_boot())) {
    const std::string name = short_name(lost.domain);
    if (!name.starts_with(request.gpus)) continue;
    auto lease = take_lease(run_directory(), name, request.who);
    if (!lease.ok() && !free_without_lease(lease.error(), name)) {
      out.push_back({lost.domain,
                     lease_holder(run_directory(), name).lives ? Restored::Outcome::governed
                                                               : Restored::Outcome::not_restored,
                     lease.error().message});
    } else if (!request.reset) {
      out.push_back({lost.domain, Restored::Outcome::not_restored, describe(lost)});
    } else {
      if (lease.ok()) leases.push_back(*std::move(lease));
      domains.push_back(lost.domain);
      all[lost.domain] = lost;
    }
  }
  const RestoreOutcome done = restore_side_by_side(
      domains, [&](const DomainId& domain) { return reset_process(all[domain], request); },
      request.patience, clock, request.alive);
  for (const DomainId& domain : done.restored)
    out.push_back({domain, Restored::Outcome::reset,
                   "clock lock; the power limit is left as it is: nvidia-smi -q -d POWER"});
  for (const DomainId& domain : done.not_restored)
    out.push_back({domain, Restored::Outcome::not_restored, "it was not reset: try again"});
}

}  // namespace

bool writer_lives(const JournalEntry& entry) {
  return entry.pid != ::getpid() && entry.pid_started != 0 &&
         process_start(entry.pid) == entry.pid_started;
}

Journal machine_journal() { return Journal(journal_directory(), run_directory() + "/journal"); }

std::string describe(const LostJournal& lost) {
  return fmt::format(
      "journal '{}' cannot be used: `derate restore --reset` gives the GPU its own clock control",
      lost.path);
}

RestoreStep restore_process(const DomainId& domain, const OpenToRestore& open,
                            const std::string& who, const std::string& why, const Log& log) {
  auto left = machine_journal().find(domain, current_boot());
  if (!left) return exit_code::kOk;
  auto device = open(domain);
  auto restored = device.ok() ? restore_settings(**device, *left) : Result<void>(device.error());
  return {exit_code::kOk, [=, restored = std::move(restored), &log] {
            return settle_restored(domain, restored, {who, why}, log);
          }};
}

std::vector<DomainId> left_by(pid_t writer) {
  std::vector<DomainId> out;
  const auto left = machine_journal().read(current_boot());
  if (!left.ok()) return out;
  for (const JournalEntry& entry : left->entries)
    if (entry.pid == writer) out.push_back(entry.domain);
  return out;
}

void remove_unfinished_journals() { machine_journal().remove_unfinished(); }

std::map<std::string, Abandoned> left_by_nobody() {
  std::map<std::string, Abandoned> out;
  const Journal journal = machine_journal();
  const auto left = journal.read(current_boot());
  if (!left.ok()) return out;
  const auto is_free = [](const std::string& name) {
    return !lease_is_held(run_directory(), name);
  };
  for (const JournalEntry& entry : left->entries)
    if (const std::string name = short_name(entry.domain); is_free(name) && !writer_lives(entry))
      out[name] = {fmt::format("left by {}, pid {}, which is gone", entry.owner, entry.pid),
                   "derate restore"};
  for (const LostJournal& lost : journal.lost(current_boot()))
    if (const std::string name = short_name(lost.domain); is_free(name))
      out[name] = {fmt::format("journal '{}' cannot be used", lost.path), "derate restore --reset"};
  return out;
}

Result<std::vector<Restored>> restore_left(const RestoreRequest& request, Clock& clock) {
  const Instant deadline = clock.now() + request.wait;
  const Journal journal = machine_journal();
  const Leftovers left = TRY(journal.read(current_boot()));
  set_unusable_aside(left, journal, current_boot(), run_directory(), request.log);
  std::vector<Restored> out;
  std::vector<UniqueFd> leases;  // held until all is done, by the restoring processes too
  std::vector<DomainId> domains;
  for (const JournalEntry& entry : left.entries) {
    if (!short_name(entry.domain).starts_with(request.gpus)) continue;
    const std::string name = short_name(entry.domain);
    auto lease = await_lease(clock, run_directory(), name, request.who, deadline, request.alive);
    const bool ours = lease.ok() || free_without_lease(lease.error(), name);
    if (ours && writer_lives(entry)) {
      out.push_back({entry.domain, Restored::Outcome::governed,
                     fmt::format("{}, pid {}, lives; its lease was removed from the run folder",
                                 entry.owner, entry.pid)});
    } else if (ours) {
      if (lease.ok()) leases.push_back(*std::move(lease));
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
  reset_lost(request, clock, out);
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

void set_unusable_aside(const Leftovers& left, const Journal& journal, const BootIdentity& life,
                        const std::string& run_folder, const Log& log,
                        const std::function<bool(const DomainId&)>& is_ours) {
  journal.remove_unfinished();
  for (const std::string& note : left.notes) log.warning(note);
  for (const UnusableJournal& bad : left.unusable) {
    const std::string name = std::filesystem::path(bad.path).stem();
    if (!is_ours(parse_domain(name)) && lease_is_held(run_folder, name)) {
      log.warning(fmt::format("journal '{}' {}: left alone, since {} governs the GPU", bad.path,
                              bad.why, describe(lease_holder(run_folder, name))),
                  {{"path", bad.path}});
      continue;
    }
    const auto moved = journal.set_aside(bad, life);
    const char* const next = bad.may_matter
                                 ? "set aside, not applied; `derate restore --reset` resets the GPU"
                                 : "set aside, not applied";
    log.error(fmt::format("journal '{}' {}: {}", bad.path, bad.why,
                          moved.ok() ? next : moved.error().message),
              {{"path", bad.path}});
  }
}

}  // namespace derate
