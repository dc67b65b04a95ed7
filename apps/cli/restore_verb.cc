// derate restore: puts back what governors that died have left, from their journals.
#include <fmt/format.h>
#include <unistd.h>

#include "apps/common/output.h"
#include "apps/common/paths.h"
#include "apps/common/restore.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "govern/guard.h"
#include "govern/lease.h"
#include "verbs.h"

namespace derate::cli {
namespace {

constexpr Duration kRestorePatience = std::chrono::seconds(10);
constexpr Duration kAskEvery = std::chrono::milliseconds(100);

struct Row {
  std::string uuid, outcome, detail;
};

std::string found_text(const JournalEntry& entry) {
  std::string out =
      entry.clock_written ? entry.found_lock ? "lock as configured" : "clock unlocked" : "";
  if (entry.power_written && entry.found.power_limit)
    out += fmt::format("{}power limit {:.0f} W", out.empty() ? "" : ", ",
                       entry.found.power_limit->value());
  return out;
}

bool chosen(const std::string& gpus, const std::string& uuid) {
  return gpus.empty() || uuid.rfind(gpus, 0) == 0;
}

int print_rows(const std::vector<Row>& rows, bool as_json) {
  bool all = true;
  Json list = Json::array();
  for (const Row& row : rows) {
    all = all && row.outcome != "not restored";
    list.push_back({{"uuid", row.uuid}, {"outcome", row.outcome}, {"detail", row.detail}});
  }
  if (as_json) {
    print_json({{"gpus", std::move(list)}});
  } else if (rows.empty()) {
    print("nothing to restore: no journal is left\n");
  } else {
    for (const Row& row : rows) print("{}: {} ({})\n", row.uuid, row.outcome, row.detail);
  }
  return all ? exit_code::kOk : exit_code::kFailure;
}

// Asked again until `deadline` while another has it.
Result<UniqueFd> lease_by(Clock& clock, Instant deadline, const std::string& uuid) {
  const std::string owner = fmt::format("derate restore, pid {}", ::getpid());
  while (true) {
    auto lease = take_lease(run_directory(), uuid, owner);
    const bool busy = !lease.ok() && lease.error().code == Errc::busy;
    if (!busy || clock.now() >= deadline) return lease;
    clock.sleep_until(std::min(deadline, clock.now() + kAskEvery));
  }
}

}  // namespace

Result<int> run_verb(const RestoreOptions& options) {
  SystemClock clock;
  const Instant deadline = clock.now() + from_seconds(options.wait_s);
  const Leftovers left = TRY(Journal(journal_directory()).read(current_life()));
  set_unusable_aside(left);
  std::vector<Row> rows;
  std::vector<UniqueFd> leases;  // held until all is done, by the restoring processes too
  std::vector<std::string> uuids;
  for (const JournalEntry& entry : left.entries) {
    if (!chosen(options.gpus, entry.uuid)) continue;
    auto lease = lease_by(clock, deadline, entry.uuid);
    if (lease.ok()) {
      leases.push_back(*std::move(lease));
      uuids.push_back(entry.uuid);
    } else if (lease.error().code == Errc::busy) {
      rows.push_back({entry.uuid, "left alone", lease.error().message});
    } else {
      rows.push_back({entry.uuid, "not restored", lease.error().message});
    }
  }
  const std::string who = fmt::format("derate restore, pid {}", ::getpid());
  const RestoreOutcome done = restore_side_by_side(
      uuids, [&](const std::string& uuid) { return restore_process(uuid, who, "asked to"); },
      kRestorePatience, clock);
  for (const JournalEntry& entry : left.entries) {
    const auto is = [&](const std::vector<std::string>& list) {
      return std::find(list.begin(), list.end(), entry.uuid) != list.end();
    };
    if (is(done.restored)) rows.push_back({entry.uuid, "restored", found_text(entry)});
    if (is(done.not_restored))
      rows.push_back({entry.uuid, "not restored", "its journal is kept: try again"});
  }
  return print_rows(rows, options.json);
}

}  // namespace derate::cli
