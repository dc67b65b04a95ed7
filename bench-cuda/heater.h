// Tensor cores kept busy beside a workload, out of registers: power that depends on the operands,
// and no memory traffic. It moves the clock of a GPU at its power limit and sets nothing.
#pragma once

#include <cstdint>
#include <memory>

namespace derate::bench_cuda {

class Heater {
 public:
  // On `share` of the multiprocessors of the current GPU, one small block each.
  Heater(double share, std::uint64_t seed);
  ~Heater();

  // Random values for `share` of the operands (at first all), 0 for the rest, from what is queued
  // next on.
  void fill(double share);

  // Queues about 0.1 s of work; to be called more often than that.
  void top_up();

  struct Done {
    double tflop = 0;
    double seconds = 0;  // as the GPU counts them
  };
  // What has ended since the last call.
  Done take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace derate::bench_cuda
