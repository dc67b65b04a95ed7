#include "govern/fleet/lease_keeper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <vector>

namespace derate {
namespace {

TEST(LeaseKeeper, TakesEachOnceAndReleasesWhatItHolds) {
  std::vector<std::string> said;
  LeaseKeeper leases(
      {[&](const DomainId& domain) -> Result<UniqueFd> {
         said.push_back("take " + short_name(domain));
         if (domain.name == "GPU-1") return Error{Errc::busy, "GPU-1 is governed by derated"};
         return UniqueFd(::dup(0));
       },
       [&](const DomainId& domain) { said.push_back("release " + short_name(domain)); }});
  ASSERT_TRUE(leases.take(gpu_domain("GPU-0")).ok());
  ASSERT_TRUE(leases.take(gpu_domain("GPU-0")).ok());
  EXPECT_EQ(leases.take(gpu_domain("GPU-1")).error().code, Errc::busy);
  EXPECT_TRUE(leases.holds(gpu_domain("GPU-0")));
  EXPECT_FALSE(leases.holds(gpu_domain("GPU-1")));
  leases.release(gpu_domain("GPU-1"));
  leases.release(gpu_domain("GPU-0"));
  leases.release(gpu_domain("GPU-0"));
  EXPECT_EQ(said, (std::vector<std::string>{"take GPU-0", "take GPU-1", "release GPU-0"}));
}

TEST(LeaseKeeper, SimulatedGpusNeedNone) {
  LeaseKeeper leases({});
  EXPECT_TRUE(leases.take(gpu_domain("GPU-0")).ok());
  EXPECT_FALSE(leases.holds(gpu_domain("GPU-0")));
}

}  // namespace
}  // namespace derate
