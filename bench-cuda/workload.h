// What a workload is to the rest of the program. C++17 and without CUDA's headers: CUDA 11's
// compiler reads it, and so do tests on machines without one.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct CUstream_st;

namespace derate::bench_cuda {

using Stream = CUstream_st*;  // cudaStream_t

// How far the GPU is from the CPU. Errors are relative to the largest value that was compared.
struct Check {
  double largest_error;
  double allowed_error;
};

// One kind of work: its step is queued again and again. Each begins with the same input (integers
// that wrap in launch-bound), so that none drifts from what was checked.
struct Phase {
  std::string name;
  double work_a_step;  // in the workload's unit
  std::function<void(Stream)> step;
};

// A workload with its memory on the GPU, its result checked. Phases take turns where there are two.
struct Job {
  std::vector<Phase> phases;
  Check check;
  // Makes the inputs anew with random values for `share` of them, a constant for the rest; 1 as
  // checked. Empty where the input is the work's own state.
  std::function<void(double share, Stream)> fill;
};

struct JobOptions {
  std::int64_t size;
  std::uint64_t seed;
};

enum class SizeRule { multiple_of_lowest, power_of_two };

struct Sizes {
  const char* what;
  std::int64_t initial, lowest, highest;
  SizeRule rule;
};

// One row of the table (workloads.cc).
struct Workload {
  const char* name;
  const char* work_unit;
  Sizes sizes;
  const char* stresses;
  Job (*prepare)(const JobOptions& options);
};

}  // namespace derate::bench_cuda
