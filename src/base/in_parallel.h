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

// The results of job(0) to job(count - 1), in that order. At most `threads` jobs run at once; 0: as
// many as there are cores. This thread calls `watch(number of jobs that have ended)` until all have
// ended; `watch` waits a moment itself, and where it gives false no other job begins, so that fewer
// results come back. Errors: that of the failed job with the lowest number; no other job begins
// after a failure.
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
