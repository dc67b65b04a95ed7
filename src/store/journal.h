// The settings found on each GPU, on disk before the first of them is changed: whoever finds a
// journal, after a crash or a kill, can put them back. One small JSON file a GPU.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/gpu_settings.h"

namespace derate {

// Which life of the machine and of its driver: settings do not outlive either, so a journal of
// another life is never applied.
struct BootIdentity {
  std::string boot_id;      // /proc/sys/kernel/random/boot_id
  std::string driver_load;  // changes whenever the nvidia module is loaded; empty without one

  bool operator==(const BootIdentity&) const = default;
};
BootIdentity current_boot();

struct JournalEntry {
  std::string uuid;
  BootIdentity life;
  std::string owner;  // "derated", "derate run"
  pid_t pid = 0;      // of the process that writes to the GPU
  WallTime time{};    // when the settings were read
  GpuSettings found;
  // Locked clocks cannot be read: what the configuration says they were; empty: none, so restoring
  // resets them.
  std::optional<ClockRange> found_lock;
  // The knobs that were about to be turned, or were: only these are restored.
  bool clock_written = false, power_written = false;

  bool operator==(const JournalEntry&) const = default;
};

// A file in the journal's folder that may not be applied.
struct UnusableJournal {
  std::string path;
  std::string why;
};

struct Leftovers {
  std::vector<JournalEntry> entries;
  std::vector<UnusableJournal> unusable;
};

class Journal {
 public:
  explicit Journal(std::string folder) : folder_(std::move(folder)) {}

  // On disk, name and content, when this returns. Errors: no_permission, io, invalid_argument for a
  // UUID that cannot be a file's name.
  Result<void> write(const JournalEntry& entry) const;
  // Done with this GPU; nothing happens when there is no entry. Errors: no_permission, io.
  Result<void> remove(const std::string& uuid) const;
  // Everything there is. A file that does not parse, was written by another user, or belongs to
  // another life is unusable. Errors: io when the folder is there and cannot be read.
  Result<Leftovers> read(const BootIdentity& now) const;
  // Removes what writers that are gone had begun to write: never an entry. A failure leaves litter.
  void remove_unfinished() const;
  // Renames an unusable file so that it is found once, and can still be looked at.
  Result<void> set_aside(const std::string& path) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string path_of(const std::string& uuid) const { return folder_ + "/" + uuid + ".json"; }

  std::string folder_;
};

// The entry as JSON, and back. Errors of parsing: bad_data.
std::string journal_text(const JournalEntry& entry);
Result<JournalEntry> parse_journal(std::string_view text);

}  // namespace derate
