// Readers of a process's facts from /proc (user, start, session, ancestors, DERATE_DELTA) and of
// user numbers, a cache of them for processes that send beats, and the settings' promise rules.
// Every reader here may block for as long as a process is stuck or a directory server is away: none
// is for the control thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/process_handle.h"
#include "base/result.h"
#include "config/settings.h"
#include "core/gpu_process.h"
#include "govern/job_classes.h"

namespace derate {

// Without ancestors and environment. Empty when there is no such process.
std::optional<ProcessFacts> read_process(std::int64_t pid);
// Its start alone; empty when there is no such process.
std::optional<std::uint64_t> read_start(std::int64_t pid);
// Those above it in its session, and above that those of its user, nearest first, up to where that
// logged in: a session's leader on a terminal is the last. At most 64.
std::vector<Ancestor> read_ancestors(const ProcessFacts& process);
// Its DERATE_DELTA, the first in the first 32 KiB of its environment. Empty without one, and where
// it may not be read (docs/heartbeats.md says by whom it may).
std::string read_asked(std::int64_t pid);
// The number of the user of that name; empty where this machine has none. Errors: io when it could
// not be asked.
Result<std::optional<std::uint32_t>> find_user(const std::string& name);

struct ProcessReaders {
  std::function<std::optional<ProcessFacts>(std::int64_t pid)> facts = read_process;
  std::function<std::optional<std::uint64_t>(std::int64_t pid)> start = read_start;
  std::function<std::vector<Ancestor>(const ProcessFacts& process)> ancestors = read_ancestors;
  std::function<std::string(std::int64_t pid)> asked = read_asked;
  std::function<Result<std::optional<std::uint32_t>>(const std::string& name)> user = find_user;
  // Opens a handle of the process. Never waits.
  std::function<ProcessHandle(std::int64_t pid)> hold = ProcessHandle::open;
};

// Facts of processes that send beats, by number and start: one that sends often costs one look at
// its start.
class KnownSenders {
 public:
  static constexpr std::size_t kMost = 256;
  // A process may change its user, group and session: it is read anew then.
  static constexpr Duration kReadAgain = std::chrono::minutes(1);

  explicit KnownSenders(ProcessReaders readers) : readers_(std::move(readers)) {}

  struct Question {
    std::int64_t pid = 0;
    std::uint32_t uid = 0;   // of who speaks
    bool ancestors = false;  // are wanted, whatever its session
  };
  // Ancestors also where its session is one of these, where GPUs are worked on.
  std::optional<ProcessFacts> look(const Question& question,
                                   const std::vector<std::int64_t>& sessions, Instant now);
  std::size_t size() const { return known_.size(); }

 private:
  struct Known {
    ProcessFacts facts;
    bool with_ancestors = false;
    Instant read{}, asked{};
  };
  Known* find_or_read(const Question& question, Instant now);

  ProcessReaders readers_;
  std::map<std::int64_t, Known> known_;
};

// The rules of the settings. Those that name a user are `unknown` until it has been looked up.
struct RulesOfSettings {
  struct NamedUser {
    std::size_t rule = 0;
    std::string name, where;
  };
  PromiseRules rules;
  std::vector<NamedUser> users;
};
RulesOfSettings promise_rules(const Settings& settings);

}  // namespace derate
