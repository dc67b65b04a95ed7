// A week of processes that come and go on one GPU, in virtual time: what attribution holds of them,
// once a day. Run by people: build/dev/tests/churn_soak, or a month: build/dev/tests/churn_soak 30
#include <fmt/format.h>

#include "base/text.h"
#include "churn.h"

int main(int argc, char** argv) {
  using namespace derate;
  const auto days = argc > 1 ? parse_integer(argv[1]) : 7;
  if (!days || *days < 1 || *days > 366) {
    fmt::print(stderr, "usage: churn_soak [DAYS]\n");
    return 2;
  }
  const ChurnCounts all = run_churn({.length = std::chrono::hours(24 * *days)});
  fmt::print("{:>4} {:>12}\n", "day", "bytes held");
  for (std::size_t hour = 0; hour < all.in_use.size(); hour += 24)
    fmt::print("{:>4} {:>12}\n", hour / 24, all.in_use[hour]);
  fmt::print(
      "{} ticks, {} processes, at most {} at a time and {} accounts open; {} closed, {} mJ off\n",
      all.ticks, all.processes, all.tenants, all.open_accounts, all.closed, all.unsettled_mj);
  return all.unsettled_mj == 0 ? 0 : 1;
}
