// Kalman filter of the watts that busy units draw, learned from the board's power while it runs:
// one filter over what all tenants have in common and what each has of its own.
//
//   P = base + context + D - loss D^2 + wake D / (D + 100 W) + noise,  D = sum_k d_k
//   d_k = sum_j (theta_j + delta_kj) z_kj + bend sum_j theta_j z_kj (1 - u_kj)
//
// z are power_features(), u the same in the tenant's own units. `bend` is for units that draw less
// for each further percent. The deviations delta are the point: operand data alone move a kernel's
// power by up to 67 % at equal counters (arXiv 2212.08805).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "attrib/features.h"
#include "model/linear_belief.h"

namespace derate {

// What is believed before anything was seen. Watts of the whole GPU.
struct WattPrior {
  Belief base, context;
  Belief loss{0.1, 0.1};  // per kW
  Belief wake{10, 10};    // W
  Belief bend{0.1, 0.5};
  std::array<Belief, kPowerFeatures> units;
  // A tenant's deviation: all its units together by this factor, and each by that besides.
  double gain_sd = 0.25, unit_sd = 0.2;
};

// How fast beliefs age, as parts of the prior's variance, or W^2, in a second.
struct WattAging {
  double base_w2 = 0.001;
  double context = 1e-5;
  double units = 3e-5;
  double tenant = 5e-4;
};

class PowerKalmanFilter {
 public:
  struct Tenant {
    std::string key;
    PowerFeatures features{};  // of the whole GPU
    double share = 1;          // to get its own units back
    double memory_share = 1;
    // How much of what was learned of it is doubted now, 0..1: 1 begins anew.
    double doubt = 0;
  };
  struct Observation {
    std::vector<Tenant> tenants;
    bool context = false;
    double core_factor = 1;
    double capped = 0;   // the part of it under the power limit
    double seconds = 1;  // since the scene before
  };
  struct TenantWatts {
    double mean = 0, sd = 0;
    double bent = 0;      // of the mean, what the bend makes of it
    double prior_sd = 0;  // with nothing learned of this tenant nor of the units
  };
  struct Outcome {
    double base = 0, base_sd = 0, context = 0, context_sd = 0;
    std::vector<TenantWatts> tenants;
    double noise_sd = 0;  // of the board's reading, as adapted
  };

  PowerKalmanFilter(const WattPrior& prior, const WattAging& aging);
  PowerKalmanFilter(const PowerKalmanFilter& other);
  PowerKalmanFilter& operator=(const PowerKalmanFilter& other);
  PowerKalmanFilter(PowerKalmanFilter&&) noexcept;
  PowerKalmanFilter& operator=(PowerKalmanFilter&&) noexcept;
  ~PowerKalmanFilter();

  // Lets variances grow with time, drops tenants that are gone and adds new ones.
  void advance(const Observation& scene);
  // Learns from the board's mean power over the scene. Returns the log-likelihood of it.
  double learn(const Observation& scene, double board_w);
  // The base may have moved by as much as that, W: one standard deviation.
  void doubt_base(double sd_w);
  // What every tenant draws of its own may have, by that part of the prior's variance.
  void doubt_tenants(double part);
  // How far off the last reading that was learned from was, in standard deviations, and in watts.
  double surprise() const;
  double off_w() const;
  // The estimated power of each tenant of the scene: the Shapley values of their common draw.
  Outcome estimate(const Observation& scene) const;

  // The number of its states, and the least of their variances, W^2, which rounding must not bring
  // below 0.
  std::size_t states() const;
  double least_variance() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace derate
