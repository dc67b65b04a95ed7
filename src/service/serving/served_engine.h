// An engine that serves a language model, by the readings of its page: its newest state, and its
// last minutes. The daemon has one a service, `derate run` one of its command.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "api/service_requests.h"
#include "core/promise.h"
#include "core/serving_state.h"
#include "govern/fleet/record_sink.h"
#include "service/serving/service_window.h"

namespace derate {

class ServedEngine {
 public:
  // `most_running`: requests that it runs at a time at most; 0: not known.
  ServedEngine(std::vector<Promise> promises, int most_running);

  // A reading that was made `age_seconds` before now. `energy`: of its GPUs since some moment;
  // empty: not known. `runs` counts the runs of all engines: each has a number of its own.
  void take(const ServiceReading& reading, Instant now, std::optional<Joules> energy,
            std::uint64_t& runs);
  // A reading failed, for that reason.
  void fail(const std::string& why);
  // A record of one of its GPUs. The slowest of them sets its pace.
  void take(const GpuRecord& record);
  // It has other GPUs from now on.
  void move();

  const std::vector<Promise>& promises() const { return promises_; }
  // Null: its page was never read.
  const SharedServingState& state() const { return state_; }
  // Why the last reading failed; empty: it did not.
  const std::string& error() const { return error_; }
  // The largest edge of its histogram that is within the promise; empty: there is none.
  std::optional<double> edge_s() const;
  bool is_older_than(Duration age, Instant now) const {
    return state_ == nullptr || now - state_->time > age;
  }
  // The reason that its promise cannot be kept, a sentence without a stop; empty: it can.
  std::string why_no_promise() const;
  // The figures by its readings; the caller fills the rest of the view in.
  ServiceView view(Instant now) const;

 private:
  std::vector<Promise> promises_;
  int most_running_;
  SharedServingState state_;
  bool promise_possible_ = false;
  std::string engine_, model_, error_;
  ServiceWindow window_;
  std::map<std::string, double> clocks_;  // shares of the highest, by UUID
};

}  // namespace derate
