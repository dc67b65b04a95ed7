// A thread with a table of descriptors of its own. A file that hangs as it is closed keeps the
// table of its thread for as long as it hangs, whatever kills the process: this one has no lease,
// no socket that listens and nothing else of the process.
#pragma once

#include <functional>
#include <future>
#include <vector>

namespace derate {

// `work` runs on a thread that nobody waits for, which has the descriptors `kept` by the same
// numbers, and no others. Signals are for other threads. Once that is true, so is the future, and
// the caller may close its own. False: there is no such thread, and `work` does not run.
std::future<bool> start_apart(std::vector<int> kept, std::function<void()> work);

}  // namespace derate
