// Assignments of policies and tuning runs to GPUs: the requests from outside that are in force or
// wait, one of each origin (origin.h), and whether another governs, waits or is refused.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "govern/fleet/origin.h"
#include "govern/fleet/policy_choice.h"
#include "tune/tuned_run.h"

namespace derate {

// A policy, and how it is carried out.
struct PolicyAssignment {
  ChosenPolicy policy;
  bool dry_run = false;
  bool operator==(const PolicyAssignment&) const = default;
};

// A GPU's place in a job that is tuned.
struct TunedPlace {
  std::shared_ptr<TunedRun> run;
  std::size_t gpu = 0;  // which of the run's it is
  bool operator==(const TunedPlace&) const = default;
};

// A request for a GPU, whatever its origin. With neither a policy nor a run the GPU is only
// observed.
struct Assignment {
  RequestOrigin origin = origins::configuration;
  std::string who;  // the user, the job
  std::string why = origin->why;
  std::optional<WallTime> since = {};  // when it was requested; empty: not said
  std::optional<Instant> until = {};   // when it ends; empty: when it is withdrawn
  std::optional<PolicyAssignment> policy = {};
  std::optional<TunedPlace> tuned = {};

  bool governs() const { return policy || tuned; }
};

// What becomes of a request for a GPU of which `first` is the assignment that wins; null: none
// does.
enum class Verdict : std::uint8_t { governs, waits, refused };
Verdict decide(const Assignment& request, const Assignment* first);

// Why a user may not have that policy where operators have assigned `by` (of_operators()); null:
// they have assigned nothing. Empty: the user may. Errors: no_permission.
Result<void> beyond_operators(const PolicyAssignment& wanted, const Assignment* by);

class Assignments {
 public:
  // Replaces the assignment that its origin had made for the GPU.
  void put(const std::string& uuid, Assignment assignment);
  void withdraw(const std::string& uuid, RequestOrigin origin);
  void withdraw(RequestOrigin origin);  // of all GPUs

  // The assignment of that origin; null: it has made none.
  const Assignment* find(const std::string& uuid, RequestOrigin origin) const;
  // The assignment that wins at that time; null: there is none.
  const Assignment* winner(const std::string& uuid, Instant now) const;
  // The same of what operators ask for: by configuration, command or unconfirmed command.
  const Assignment* of_operators(const std::string& uuid, Instant now) const;
  // UUIDs of the GPUs that the origin has assigned in the name of `who`.
  std::vector<std::string> gpus_of(RequestOrigin origin, const std::string& who) const;
  // Each job that is tuned, once.
  std::vector<std::shared_ptr<TunedRun>> tuned_runs() const;

 private:
  // Of those whose origin is wanted.
  template <class Wanted>
  const Assignment* highest(const std::string& uuid, Instant now, Wanted wanted) const;

  std::map<std::string, std::map<RequestOrigin, Assignment>> assignments_;  // by UUID
};

}  // namespace derate
