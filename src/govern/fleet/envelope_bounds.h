// The bounds that others have put on GPUs by UUID: a budget, an annotation of a job, an operator.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/envelope_bound.h"

namespace derate {

class EnvelopeBounds {
 public:
  // Each source has one bound a GPU: this replaces the one that it had set.
  void put(const std::string& uuid, EnvelopeBound bound);
  void withdraw(const std::string& uuid, const std::string& source);
  // All bounds that hold at that time, the lowest `most` first.
  std::vector<EnvelopeBound> of(const std::string& uuid, Instant now) const;

 private:
  std::map<std::string, std::map<std::string, EnvelopeBound>> bounds_;  // by UUID and source
};

}  // namespace derate
