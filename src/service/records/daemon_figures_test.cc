#include "service/records/daemon_figures.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/unique_fd.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

TEST(DaemonMeter, ReadsThisProcessOnceInTenSeconds) {
  FakeClock clock;
  clock.advance(100s);
  DaemonMeter meter(clock);
  const DaemonFigures first = meter.figures();
  EXPECT_GT(first.resident_bytes.value_or(0), 1'000'000u);
  EXPECT_GE(first.open_descriptors.value_or(0), 3u);
  EXPECT_TRUE(first.cpu && *first.cpu > 0ns);
  EXPECT_EQ(first.started, WallTime(100s));

  const UniqueFd one_more(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  clock.advance(9'999ms);
  EXPECT_EQ(meter.figures().open_descriptors, first.open_descriptors);
  clock.advance(1ms);
  const DaemonFigures& later = meter.figures();
  EXPECT_EQ(later.open_descriptors, *first.open_descriptors + 1);
  EXPECT_GE(*later.cpu, *first.cpu);
  EXPECT_EQ(later.started, first.started);
}

}  // namespace
}  // namespace derate
