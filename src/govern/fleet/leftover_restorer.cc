#include "govern/fleet/leftover_restorer.h"

#include <fmt/format.h>

#include <algorithm>

#include "device/clock_control.h"
#include "govern/fleet/restore_left.h"
#include "govern/lease.h"
#include "govern/restore_settings.h"

namespace derate {

void LeftoverRestorer::restore(std::span<ManagedGpu* const> gpus,
                               const std::set<std::string>& known) {
  const auto left = options_.journal.read(options_.life);
  if (!left.ok()) return options_.log.error(left.error().message);
  set_unusable_aside(*left, options_.journal, options_.life, options_.run_folder, options_.log,
                     [&](const DomainId& domain) { return leases_.holds(domain); });
  const auto lost = options_.journal.lost(options_.life);
  for (ManagedGpu* gpu : gpus) take_lost(*gpu, lost);
  for (const JournalEntry& entry : left->entries) {
    const auto gpu = std::find_if(gpus.begin(), gpus.end(), [&](const ManagedGpu* each) {
      return each->domain() == entry.domain;
    });
    options_.alive();
    if (gpu != gpus.end())
      restore(**gpu, entry);
    else if (!known.contains(entry.domain.name) && !writer_lives(entry))
      options_.log.warning(
          short_name(entry.domain) + ": a journal is left of a GPU that is not here: kept",
          {{"gpu", entry.domain.name}});
  }
}

void LeftoverRestorer::look_for_lost(ManagedGpu& gpu) const {
  take_lost(gpu, options_.journal.lost(options_.life));
}

// If another process governs the GPU, that process handles its lost journal.
void LeftoverRestorer::take_lost(ManagedGpu& gpu, std::span<const LostJournal> all) const {
  gpu.leftover.lost.clear();
  for (const LostJournal& lost : all)
    if (lost.domain == gpu.domain() &&
        (leases_.holds(lost.domain) ||
         !lease_is_held(options_.run_folder, short_name(lost.domain))))
      gpu.leftover.lost = describe(lost);
}

void LeftoverRestorer::restore(ManagedGpu& gpu, const JournalEntry& entry) {
  if (writer_lives(entry)) {
    leave_alone(gpu, {Errc::busy, fmt::format("{} is governed by {}, pid {}, whose lease was "
                                              "removed from the run folder",
                                              gpu.uuid(), entry.owner, entry.pid)});
    gpu.leftover.left_by_nobody = false;
    return;
  }
  if (const auto lease = leases_.take(entry.domain); !lease.ok())
    return leave_alone(gpu, lease.error());
  Leftover& leftover = gpu.leftover;
  leftover.left_alone.clear();
  leftover.look_again.reset();
  JournalEntry left = entry;
  auto restored = restore_settings(*gpu.open.control, left);
  if (restored.ok()) restored = options_.journal.remove(entry.domain);
  audit_.add({clock_.wall_now(),
              {},
              entry.domain,
              "restore",
              {},
              {},
              fmt::format("left by {}, pid {}", entry.owner, entry.pid),
              restored.ok() ? "" : restored.error().message});
  if (restored.ok())
    return options_.log.info(fmt::format("{}: restored what an earlier process left: {}, pid {}",
                                         gpu.uuid(), entry.owner, entry.pid),
                             {{"gpu", gpu.uuid()}, {"pid", entry.pid}});
  options_.log.error(fmt::format("{}: not restored: {}", gpu.uuid(), restored.error().message),
                     {{"gpu", gpu.uuid()}});
  leftover.failure = restored.error().message;
  leftover.owed = JournalHandle{options_.journal, entry};
}

// It is looked for again: the governor that has the GPU may die before it has restored it.
void LeftoverRestorer::leave_alone(ManagedGpu& gpu, const Error& why) {
  Leftover& leftover = gpu.leftover;
  leftover.left_by_nobody = !lease_holder(options_.run_folder, gpu.uuid()).lives;
  leftover.look_again = clock_.now() + kAgain;
  const std::string text = "a journal is left alone: " + why.message;
  if (text != std::exchange(leftover.left_alone, text))
    options_.log.warning(text, {{"gpu", gpu.uuid()}});
}

void LeftoverRestorer::look_again(ManagedGpu& gpu) {
  const auto left = options_.journal.read(options_.life);
  if (!left.ok()) {
    gpu.leftover.look_again = clock_.now() + kAgain;
    return options_.log.error(left.error().message, {{"gpu", gpu.uuid()}});
  }
  for (const JournalEntry& entry : left->entries)
    if (entry.domain == gpu.domain()) return restore(gpu, entry);
  gpu.leftover.left_alone.clear();
  gpu.leftover.look_again.reset();
}

void LeftoverRestorer::try_again(ManagedGpu& gpu) {
  Leftover& leftover = gpu.leftover;
  const Instant now = clock_.now();
  if (!leftover.owed || now < leftover.restore_again.value_or(now)) return;
  leftover.restore_again = now + kAgain;
  JournalEntry& entry = leftover.owed->entry;
  if (!restore_settings(*gpu.open.control, entry).ok()) return;
  if (const auto removed = options_.journal.remove(entry.domain); !removed.ok())
    return options_.log.error(removed.error().message, {{"gpu", gpu.uuid()}});
  audit_.add({clock_.wall_now(), {}, entry.domain, "restore", {}, {}, "tried again", {}});
  options_.log.info(gpu.uuid() + ": restored at last", {{"gpu", gpu.uuid()}});
  leftover.owed.reset();
  leftover.restore_again.reset();
}

Result<void> LeftoverRestorer::finish(ManagedGpu& gpu) {
  Leftover& leftover = gpu.leftover;
  if (!leftover.left_alone.empty()) look_again(gpu);
  leftover.restore_again.reset();
  try_again(gpu);
  if (!leftover.left_alone.empty() && leftover.left_by_nobody)
    return Error{Errc::busy, leftover.left_alone};
  if (!leftover.lost.empty()) look_for_lost(gpu);
  if (!leftover.lost.empty()) return Error{Errc::io, leftover.lost};
  if (leftover.owed) return Error{Errc::io, gpu.uuid() + ": not restored: its journal is kept"};
  return {};
}

}  // namespace derate
