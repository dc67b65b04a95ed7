// The settings found on each domain, on disk before the first of them is changed: whoever finds a
// journal, after a crash or a kill, can restore them. A domain has a small JSON file, with a row a
// knob.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/units.h"
#include "core/domain.h"
#include "core/knob.h"

namespace derate {

// Which life of the machine and of the GPUs' driver: a GPU's settings outlive neither, those of
// another domain no boot, so a journal of another life is never applied.
struct BootIdentity {
  std::string boot_id;      // /proc/sys/kernel/random/boot_id
  std::string driver_load;  // changes whenever the nvidia module is loaded; empty without one

  bool operator==(const BootIdentity&) const = default;
};
BootIdentity current_boot();

struct JournalKnob {
  // Before the first write: as it was read; of a knob that cannot be read, as the configuration
  // says.
  std::optional<KnobValue> found;
  bool written = false;  // it was about to be, or was: only such knobs are restored

  bool operator==(const JournalKnob&) const = default;
};

struct JournalEntry {
  DomainId domain;
  BootIdentity life;
  std::string owner;  // "derated", "derate run"
  pid_t pid = 0;      // of the process that writes to the domain
  WallTime time{};    // when the settings were read
  std::map<std::string, JournalKnob, std::less<>> knobs;  // by name (core/knob.h)

  std::optional<KnobValue> found(std::string_view knob) const;
  bool is_written(std::string_view knob) const;
  bool any_written() const;

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
  // domain that cannot be a file's name.
  Result<void> write(const JournalEntry& entry) const;
  // Done with this domain; nothing happens when there is no entry. Errors: no_permission, io.
  Result<void> remove(const DomainId& domain) const;
  // Everything there is. A file that does not parse, was written by another user, or belongs to
  // another life is unusable. Errors: io when the folder is there and cannot be read.
  Result<Leftovers> read(const BootIdentity& now) const;
  // Removes what writers that are gone had begun to write: never an entry. A failure leaves litter.
  void remove_unfinished() const;
  // Renames an unusable file so that it is found once, and can still be looked at.
  Result<void> set_aside(const std::string& path) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string path_of(const DomainId& domain) const {
    return folder_ + "/" + short_name(domain) + ".json";
  }

  std::string folder_;
};

// The entry as JSON, and back; also one that 0.1.0 wrote. Errors of parsing: bad_data.
std::string journal_text(const JournalEntry& entry);
Result<JournalEntry> parse_journal(std::string_view text);

}  // namespace derate
