// Who bounds the clocks of a GPU from above: a budget, an annotation of a job, an operator. All of
// them hold, so the lowest counts; a policy goes on below it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace derate {

struct EnvelopeBound {
  std::string source;  // "budget", "annotation": each has one bound a GPU
  std::string who;     // in whose name
  std::string why;
  Megahertz highest{};                // any clock: the GPU's next lower one is meant
  std::optional<Instant> until = {};  // after which it holds no more; empty: until withdrawn
};

class EnvelopeBounds {
 public:
  // Replaces the bound that its source had set.
  void put(const std::string& uuid, EnvelopeBound bound);
  void withdraw(const std::string& uuid, const std::string& source);
  // All bounds that hold at that time, the lowest first.
  std::vector<EnvelopeBound> of(const std::string& uuid, Instant now) const;
  // The lowest bound at that time; null: there is none.
  const EnvelopeBound* lowest(const std::string& uuid, Instant now) const;

 private:
  std::map<std::string, std::map<std::string, EnvelopeBound>> bounds_;  // by UUID and source
};

}  // namespace derate
