// The settings found on each domain, on disk before the first of them is changed: any process that
// finds a journal after a crash or a kill can restore them. A domain has a small JSON file, with a
// row for each knob and a checksum. A second copy is in another folder, so that a fault of one disk
// does not reach both: a file that is not whole is replaced by its copy.
#pragma once

#include <sys/types.h>

#include <cstdint>
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
  // Start time of that process in the kernel's ticks, which together with the PID identifies it. 0:
  // not known, as in journals of earlier versions.
  std::uint64_t pid_started = 0;
  WallTime time{};                                        // time at which the settings were read
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
  // The file may be of this boot, and its name is that of a domain: the written settings are not
  // known.
  bool may_matter = false;
};

// A domain whose journal of this boot cannot be used.
struct LostJournal {
  DomainId domain;
  std::string path;

  bool operator==(const LostJournal&) const = default;
};

struct Leftovers {
  std::vector<JournalEntry> entries;
  std::vector<UnusableJournal> unusable;
  std::vector<std::string> notes;  // sentences: the second copies that were used, and why
};

class Journal {
 public:
  // `copies`: the folder of second copies, which may be lost at a reboot. Empty: there are no
  // copies.
  explicit Journal(std::string folder, std::string copies = {})
      : folder_(std::move(folder)), copies_(std::move(copies)) {}

  // Name and content are on disk when this returns. Errors: no_permission, io, invalid_argument for
  // a domain that cannot be a file's name. If the copy cannot be written, there is no copy.
  Result<void> write(const JournalEntry& entry) const;
  // Done with this domain; nothing happens when there is no entry. Errors: no_permission, io.
  Result<void> remove(const DomainId& domain) const;
  // Reads all entries. A file is unusable if it does not parse, has a wrong checksum, was written
  // by another user, or is of another boot or driver load. Except in the last case, a copy that is
  // whole and of this boot and load replaces it. Errors: io if the folder exists and cannot be
  // read.
  Result<Leftovers> read(const BootIdentity& now) const;
  // Reads the entry of one domain, its copy first, because the disk of the entry may not answer.
  // Empty: no entry may be applied.
  std::optional<JournalEntry> find(const DomainId& domain, const BootIdentity& now) const;
  // Removes what writers that are gone had begun to write: never an entry. A failure leaves litter.
  void remove_unfinished() const;
  // Renames an unusable file, so that it is found only once and can be inspected. If it may matter,
  // it is in lost() until the machine reboots or the domain is reset.
  Result<void> set_aside(const UnusableJournal& bad, const BootIdentity& now) const;
  // Includes files that are not set aside yet, or could not be.
  std::vector<LostJournal> lost(const BootIdentity& now) const;
  // Call after the domain was reset: keeps the file like others set aside. Errors: no_permission,
  // io.
  Result<void> settle(const LostJournal& lost) const;

  const std::string& folder() const { return folder_; }

 private:
  std::string path_of(const DomainId& domain) const {
    return folder_ + "/" + short_name(domain) + ".json";
  }
  std::string copy_of(const std::string& path) const;
  void read_one(const std::string& path, const BootIdentity& now, Leftovers& out) const;

  std::string folder_, copies_;
};

// The entry as JSON, and back. Also parses version 1 (Derate 0.1.0) and version 2, both without a
// checksum. Errors of parsing: bad_data.
std::string journal_text(const JournalEntry& entry);
Result<JournalEntry> parse_journal(std::string_view text);

}  // namespace derate
