// A parallel loop: runs a job for each of many numbers, on several threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/result.h"

namespace derate {

// What job(0) to job(count - 1) give, in that order; so many at a time, 0: as many as there are
// cores. `watch(done)` is called from this thread until all have ended, and waits a moment; false:
// no job is begun any more, and fewer are given. Errors: that of the lowest number; those that were
// begun with it come to their end.
template <class Job>
auto in_parallel(std::size_t count, unsigned threads, const Job& job,
                 const std::function<bool(std::size_t)>& watch = {})
    -> Result<std::vector<typename std::invoke_result_t<Job, std::size_t>::value_type>> {
  using JobResult = std::invoke_result_t<Job, std::size_t>;
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::optional<JobResult>> results(count);
  std::atomic<std::size_t> next{0}, done{0}, ended{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      results[i].emplace(job(i));
      if (!results[i]->ok()) next = count;
      ++done;
    }
    ++ended;
  };
  {
    std::vector<std::jthread> pool;
    for (std::size_t i = 0; i < std::min<std::size_t>(threads, count); ++i) pool.emplace_back(work);
    while (watch && ended < pool.size())
      if (!watch(done)) next = count;
  }
  std::vector<typename JobResult::value_type> out;
  for (auto& each : results)
    if (each) out.push_back(TRY(*std::move(each)));
  return out;
}

}  // namespace derate
