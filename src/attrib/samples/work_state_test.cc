#include "attrib/samples/work_state.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

TEST(WorkState, ASampleMeansWorkAndMissedOnesMeanNone) {
  WorkState state;
  state.meet();
  EXPECT_EQ(state.works(), 1);
  for (int i = 0; i < 10; ++i) {
    state.go_on(1);
    state.miss(0.03);
  }
  EXPECT_LT(state.works(), 0.01);
}

// Of a light process a tick without a sample is no news.
TEST(WorkState, MissesThatAreLikelyChangeLittle) {
  WorkState state;
  state.meet();
  for (int i = 0; i < 10; ++i) {
    state.go_on(1);
    state.miss(0.98);
  }
  EXPECT_GT(state.works(), 0.7);
}

// A process that was quiet for an hour stays quiet; one that wakes each few seconds is expected to.
TEST(WorkState, EachProcessHasARateOfItsOwn) {
  WorkState quiet, lively;
  for (int i = 0; i < 3600; ++i) {
    for (WorkState* state : {&quiet, &lively}) {
      state->go_on(1);
      if (state == &lively && i % 4 == 0)
        state->meet();
      else
        state->miss(0.03);
    }
  }
  quiet.go_on(1);
  lively.go_on(1);
  EXPECT_LT(quiet.works(), 1e-3);
  EXPECT_GT(lively.works(), 100 * quiet.works());
}

RC_GTEST_PROP(WorkState, IsAProbabilityWhateverIsSeen, ()) {
  WorkState state;
  const auto steps = *rc::gen::inRange(1, 60);
  for (int i = 0; i < steps; ++i) {
    state.go_on(*rc::gen::inRange(0, 60));
    switch (*rc::gen::inRange(0, 3)) {
      case 0:
        state.meet();
        break;
      case 1:
        state.miss(*rc::gen::inRange(0, 101) / 100.0);
        break;
      default:
        state.learn(*rc::gen::element(-1e9, -1.0, 0.0, 3.0, 1e9));
    }
    RC_ASSERT((state.works() >= 0 && state.works() <= 1));
  }
}

}  // namespace
}  // namespace derate
