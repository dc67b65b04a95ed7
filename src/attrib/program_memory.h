// Memory of the watts that programs have drawn on GPUs of one product: where a new process of one
// begins, and one that comes back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attrib/split.h"
#include "attrib/tick.h"
#include "core/program_watts.h"

namespace derate {

class ProgramMemory {
 public:
  // Of more programs those that were not seen for the longest time are forgotten.
  static constexpr std::size_t kMost = 1000;

  // Takes in rows that an earlier run has kept, but for values that cannot be, and for programs of
  // which processes have ended since.
  void load(const std::vector<ProgramWatts>& kept);
  // Of what is known now; processes that run are counted in.
  std::vector<ProgramWatts> programs() const;

  // Sets what is expected of the tick's processes, as far as anything is known. `gpu`: its UUID.
  void foretell(const std::string& gpu, AttribTick& tick) const;
  // Learns from a method's estimate of that tick. A process counts as far as its own ticks have
  // shown its watts: an expectation is not counted once more.
  void learn(const std::string& gpu, const AttribTick& tick, const PowerEstimate& estimate);

 private:
  // A process that is here.
  struct Run {
    ProgramId id;
    std::optional<Belief> expected;           // of its program, when it came
    double seconds = 0, sum = 0, square = 0;  // of its watts, while they were known
    double known = 0;                         // as far as they are, 0..1, summed alike
    double weight() const;
    double mean() const { return sum / seconds; }
    double variance() const;
  };
  struct Program {
    double runs = 0, mean = 0, spread2 = 0;
    std::uint64_t seen = 0;  // by order
  };

  static void add(Program& program, const Run& run);
  static std::optional<Belief> expected_of(const Program& program);
  std::optional<Belief> expected_of(const ProgramId& id) const;
  void end(const Run& run);

  std::map<std::pair<std::string, std::string>, Run> runs_;  // by GPU and key
  std::map<ProgramId, Program> programs_;
  std::uint64_t seen_ = 0;
};

}  // namespace derate
