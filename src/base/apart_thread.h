// A thread with its own table of descriptors. A file that hangs while it is closed keeps its
// thread's table alive, even if the process is killed. This table contains no lease, no listening
// socket and nothing else of the process.
#pragma once

#include <functional>
#include <future>
#include <vector>

namespace derate {

// Runs `work` on a detached thread that has only the descriptors `kept`, with the same numbers, and
// blocks all signals. The future is true once the thread has its own table: the caller may then
// close its own. False: the thread could not be set up, and `work` does not run.
std::future<bool> start_apart(std::vector<int> kept, std::function<void()> work);

}  // namespace derate
