// Which policy or tuning each GPU is assigned, by source (configuration, command, unconfirmed, run,
// tuning); unconfirmed is a command that ends by itself unless it is confirmed in time. Where
// several sources assign one, the last in the order of AssignmentSource wins.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "govern/fleet/policy_choice.h"
#include "tune/tuned_run.h"

namespace derate {

enum class AssignmentSource : std::uint8_t { configuration, command, unconfirmed, run, tuning };
const char* to_string(AssignmentSource source);

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

// The assignment of one source for one GPU. With neither a policy nor a run the GPU is only
// observed.
struct Assignment {
  AssignmentSource source = AssignmentSource::configuration;
  std::string who;  // the user, the job
  std::string why;
  std::optional<Instant> until = {};  // when it ends; empty: when it is withdrawn
  std::optional<PolicyAssignment> policy = {};
  std::optional<TunedPlace> tuned = {};

  bool governs() const { return policy || tuned; }
};

class Assignments {
 public:
  // Replaces the assignment that its source had made for the GPU.
  void put(const std::string& uuid, Assignment assignment);
  void withdraw(const std::string& uuid, AssignmentSource source);
  void withdraw(AssignmentSource source);  // of all GPUs

  // The assignment of that source; null: it has made none.
  const Assignment* find(const std::string& uuid, AssignmentSource source) const;
  // The assignment that wins at that time; null: there is none.
  const Assignment* winner(const std::string& uuid, Instant now) const;
  // The same of what operators have said: by configuration, command or unconfirmed command.
  const Assignment* of_operators(const std::string& uuid, Instant now) const;
  // UUIDs of the GPUs that the source has assigned in the name of `who`.
  std::vector<std::string> gpus_of(AssignmentSource source, const std::string& who) const;
  // Each job that is tuned, once.
  std::vector<std::shared_ptr<TunedRun>> tuned_runs() const;

 private:
  // Of those up to `last`, or of all.
  const Assignment* last_of(const std::string& uuid, Instant now,
                            std::optional<AssignmentSource> last) const;

  std::map<std::string, std::map<AssignmentSource, Assignment>> assignments_;  // by UUID
};

}  // namespace derate
