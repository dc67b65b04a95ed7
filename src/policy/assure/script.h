// The stage that `assure` is in, since when, and the clock that it requested last.
#pragma once

#include <optional>

#include "core/estimate.h"

namespace derate {

struct Script {
  // The highest clock, to know what is promised; a low one, to know what it costs; the one that it
  // holds best; and the present one, to find out which work this is.
  enum class Stage { reference, look, steady, recognise };
  Stage stage = Stage::reference;
  Instant since{};  // in this stage
  std::optional<Instant> last, idle_since, unread_since;
  bool anew = false;          // the next work is begun with in its midst
  std::uint64_t process = 0;  // that counted the work last; 0: not known
  bool by_name = false;       // a phase is taken up by what launches tell, not by what is read
  struct Request {
    Megahertz clock{};
    Instant at{};
    bool probing = false;  // it is a clock to learn from
  } asked;

  // Whether there is work. A GPU without kernels pauses, then rests, then its job has ended; a job
  // begins with the first kernels after that, and where another process counts the work.
  enum class Work { pauses, rests, has_ended, begins, goes_on };
  Work work_at(const Estimate& estimate);
  // For how long the present clock has been requested.
  Duration asked_for(Instant now) const { return now - asked.at; }
  // How long no utilisation reading has come; without it, work and idle time look alike.
  Duration unread_for(Instant now);
  void enter(Stage next, Instant now) { stage = next, since = now; }
  // Each tick stands for the time since the one before. Empty: that was too long ago.
  std::optional<Duration> time_of_tick(Instant now) const;
  // Whether that is another clock than the one requested last.
  bool request(Megahertz clock, bool probing);
};

}  // namespace derate
