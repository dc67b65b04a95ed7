// The saving that a governed run is likely to reach with work that was read at the highest clock
// alone: that of measured applications whose memory is about as busy there.
#pragma once

#include <optional>
#include <string_view>

namespace derate {

struct SavingQuestion {
  std::string_view chip, without;            // as curve_priors() has them
  bool foreign = false;                      // CurvePriors
  std::optional<double> memory_utilisation;  // NVML's at the highest clock, a share
  double max_loss = 0;                       // of performance, that is promised
  double lowest_x = 0;                       // the lowest clock, as in model/progress_curve.h
};

// Shares of energy and of performance. Between the ends lie nine of ten runs.
struct LikelySaving {
  double low = 0, high = 0, loss_low = 0, loss_high = 0;
};

LikelySaving likely_saving(const SavingQuestion& question);

}  // namespace derate
