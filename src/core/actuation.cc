#include "core/actuation.h"

namespace derate {

const char* to_string(Clamped::Rule rule) {
  switch (rule) {
    case Clamped::Rule::none:
      return "none";
    case Clamped::Rule::envelope:
      return "envelope";
    case Clamped::Rule::idle:
      return "idle";
    case Clamped::Rule::wake:
      return "wake";
    case Clamped::Rule::thermal:
      return "thermal";
    case Clamped::Rule::rate_limit:
      return "rate-limit";
    case Clamped::Rule::stale:
      return "stale";
    case Clamped::Rule::expired:
      return "expired";
  }
  return "unknown";
}

const char* to_string(Actuation::Outcome outcome) {
  switch (outcome) {
    case Actuation::Outcome::nothing:
      return "nothing";
    case Actuation::Outcome::shadow:
      return "shadow";
    case Actuation::Outcome::written:
      return "written";
    case Actuation::Outcome::released:
      return "released";
    case Actuation::Outcome::failed:
      return "failed";
    case Actuation::Outcome::waiting:
      return "waiting";
    case Actuation::Outcome::yielded:
      return "yielded";
  }
  return "unknown";
}

}  // namespace derate
