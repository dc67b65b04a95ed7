#include "base/apart_thread.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <memory>

#include "base/check.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

struct TwoEnds {
  UniqueFd read, write;
};

TwoEnds two_ends() {
  int ends[2];
  CHECK(::pipe2(ends, O_CLOEXEC) == 0);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool has_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(ApartThread, HasWhatIsKeptAndNothingElse) {
  const TwoEnds other = two_ends(), kept = two_ends(), last = two_ends();
  auto begun = start_apart({kept.write.get()}, [&] {
    bool others = false;
    for (int fd = 0; fd < 1024; ++fd) others |= has_open(fd) && fd != kept.write.get();
    (void)!::write(kept.write.get(), others ? "o" : "x", 1);
  });
  EXPECT_TRUE(begun.get());
  char told = 0;
  ASSERT_EQ(::read(kept.read.get(), &told, 1), 1);
  EXPECT_EQ(told, 'x');
  EXPECT_TRUE(has_open(other.read.get()));
  EXPECT_TRUE(has_open(last.write.get()));
}

// The test closes its descriptors while the thread runs; the thread keeps its own.
TEST(ApartThread, KeepsNothingOpenForOthers) {
  TwoEnds other = two_ends(), kept = two_ends(), stop = two_ends();
  auto begun = start_apart({kept.write.get(), stop.read.get()},
                           [to = kept.write.get(), until = stop.read.get()] {
                             char end = 0;
                             (void)!::read(until, &end, 1);
                             (void)!::write(to, "x", 1);
                           });
  ASSERT_TRUE(begun.get());
  other.write = UniqueFd();
  char told = 0;
  EXPECT_EQ(::read(other.read.get(), &told, 1), 0);
  kept.write = UniqueFd();
  stop.write = UniqueFd();
  EXPECT_EQ(::read(kept.read.get(), &told, 1), 1);
}

}  // namespace
}  // namespace derate
