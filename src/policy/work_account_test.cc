#include "policy/work_account.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

constexpr std::size_t kGpu = 0, kPackage = 1;

// Whatever is counted: no more is saved at once than may be, and the most that is kept is what was
// counted.
RC_GTEST_PROP(WorkAccount, SavesNoMoreThanMayBe, ()) {
  WorkAccount account;
  account.begin(0);
  double all = 0;
  for (const int p : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 101))) {
    account.count(kGpu, p / 100.0, 0.9, 5);
    all += (p / 100.0 - 0.9) * 5;
    RC_ASSERT(account.saved_s() <= WorkAccount::kMostSaved);
    RC_ASSERT(account.saved_s() <= all + 1e-9);
  }
}

// A domain that leaves a share of the performance takes that share of the other's.
RC_GTEST_PROP(WorkAccount, DomainsSpendFromOneAccount, ()) {
  const double gpu = *rc::gen::inRange(50, 101) / 100.0;
  const double package = *rc::gen::inRange(50, 101) / 100.0;
  WorkAccount both, one;
  for (WorkAccount* each : {&both, &one}) each->begin(0);
  both.count(kPackage, package, 0.9, 0.2);  // it keeps the time until the GPU is there
  const double before = both.saved_s();
  for (int i = 0; i < 50; ++i) {
    both.count(kGpu, gpu, 0.9, 0.2);
    both.count(kPackage, package, 0.9, 0.2);
    one.count(kGpu, gpu * package, 0.9, 0.2);
  }
  RC_ASSERT(both.others(kGpu) == package);
  RC_ASSERT(both.others(kPackage) == gpu);
  RC_ASSERT(std::abs(both.saved_s() - before - one.saved_s()) < 1e-9 ||
            both.saved_s() == WorkAccount::kMostSaved);
}

TEST(WorkAccount, AloneADomainIsTheWholeOfTheWork) {
  WorkAccount account;
  account.begin(-0.1);
  account.count(kGpu, 0.95, 0.9, 2);
  EXPECT_EQ(account.others(kGpu), 1);
  EXPECT_NEAR(account.saved_s(), 0, 1e-12);
}

TEST(WorkAccount, WhatIsForfeitedIsWhatWasSaved) {
  WorkAccount account;
  account.begin(1);
  account.forfeit();
  EXPECT_EQ(account.saved_s(), 0);
  account.begin(-1);
  account.forfeit();
  EXPECT_EQ(account.saved_s(), -1);
}

TEST(WorkAccount, OnlyWhatNoVisitNeededIsSpare) {
  WorkAccount account;
  account.begin(0);
  const auto visit = [&](double performance) {
    account.count(kGpu, performance, 0.9, 1);
    account.end_visit();
  };
  for (int i = 0; i < 3; ++i) visit(1);
  EXPECT_GT(account.spare_s(), 0);
  const double before = account.spare_s();
  visit(0.7);
  EXPECT_LT(account.spare_s(), before);
  account.credit(-2);
  EXPECT_LT(account.spare_s(), 0);
}

TEST(WorkAccount, ACreditIsCappedAtOnceAndACorrectionAtTheNextCount) {
  WorkAccount account;
  account.begin(0);
  account.credit(5);
  EXPECT_EQ(account.saved_s(), WorkAccount::kMostSaved);
  account.correct(1);
  EXPECT_EQ(account.saved_s(), WorkAccount::kMostSaved + 1);
  account.count(kGpu, 0.9, 0.9, 0.2);
  EXPECT_EQ(account.saved_s(), WorkAccount::kMostSaved);
}

}  // namespace
}  // namespace derate
