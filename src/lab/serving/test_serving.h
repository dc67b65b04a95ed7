// An engine for tests: mistral-7b on a V100 under drawn requests.
#pragma once

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "device/sim/serving/serving_requests.h"
#include "lab/serving/serving_run.h"

namespace derate {

struct ServingTest {
  explicit ServingTest(const DrawnArrivals& how) {
    const auto chip = find_sim_chip("V100-SXM2");
    CHECK(chip.ok());
    const auto law = find_serving_law(**chip, "mistral-7b");
    CHECK(law.ok());
    const std::vector<ServingRequest> sizes = {{0, 20, 40},  {0, 374, 44}, {0, 396, 109},
                                               {0, 879, 55}, {0, 91, 16},  {0, 2500, 150}};
    requests = drawn_requests(sizes, how);
    spec = {*chip, *law, {.most_running = 16, .kv_tokens = law->kv_tokens}, requests, 600};
  }
  ServingTest(const ServingTest&) = delete;
  ServingTest& operator=(const ServingTest&) = delete;

  // Of the chip's clocks the highest that is at most this share of 1300 MHz.
  Megahertz clock(double share) const {
    const auto& clocks = spec.chip->sm_clocks;
    return *(std::upper_bound(clocks.begin(), clocks.end(), Megahertz(1300 * share)) - 1);
  }

  std::vector<ServingRequest> requests;
  ServingSpec spec;
};

}  // namespace derate
