// The same for each of many, on several threads.
#pragma once

#include <algorithm>
#include <future>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace derate {

// What job(0) to job(count - 1) give, in that order; so many at a time, 0: as many as there are
// cores. Errors: the first; the jobs that were begun with it come to their end.
template <class Job>
auto in_parallel(std::size_t count, unsigned threads, const Job& job)
    -> Result<std::vector<typename std::invoke_result_t<Job, std::size_t>::value_type>> {
  using JobResult = std::invoke_result_t<Job, std::size_t>;
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<typename JobResult::value_type> out;
  for (std::size_t first = 0; first < count; first += threads) {
    std::vector<std::future<JobResult>> under_way;
    for (std::size_t i = first; i < std::min<std::size_t>(first + threads, count); ++i)
      under_way.push_back(std::async(std::launch::async, [&job, i] { return job(i); }));
    for (auto& each : under_way) out.push_back(TRY(each.get()));
  }
  return out;
}

}  // namespace derate
