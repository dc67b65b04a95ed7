// Description of a key of a configuration file: section, name, unit, summary, range and scope. The
// declarations of settings.h and experiment.h are made of it, and they drive parsing, defaults,
// checks, printing and documentation.
#pragma once

#include <cstdint>
#include <limits>

namespace derate {

// What a changed setting concerns in a daemon that takes its file in anew.
enum class Scope : std::uint8_t {
  governor,    // the loop's own rules: every GPU is given back and taken anew
  assignment,  // who governs what: the GPUs that are to be governed otherwise than before
  gpu,         // how a GPU is governed: every one that is
  observer,    // how a GPU is only observed: every one that is
  service,     // no GPU: what is served beside them
  start,       // no GPU, and it is taken in at a start alone
};

// A number must lie in [lowest, highest], and so must each of a list.
struct SettingInfo {
  const char* section;
  const char* key;
  const char* unit;
  const char* summary;
  double lowest = 0;
  double highest = std::numeric_limits<double>::infinity();
  // Where none is declared everything is begun anew: that takes any setting in.
  Scope scope = Scope::governor;
};

// The keys of a section that are of one scope: each is a call of this, which calls visit(info,
// value).
template <class Visit>
struct Section {
  const char* name;
  Visit& visit;
  Scope scope = Scope::governor;

  void operator()(const char* key, const char* unit, const char* summary, auto& value,
                  double lowest = 0,
                  double highest = std::numeric_limits<double>::infinity()) const {
    visit(SettingInfo{name, key, unit, summary, lowest, highest, scope}, value);
  }
};
template <class Visit>
Section(const char*, Visit&, Scope = Scope::governor) -> Section<Visit>;

}  // namespace derate
