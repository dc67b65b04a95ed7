// What every workload needs of CUDA: checked calls, memory that frees itself, inputs, comparisons.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "failure.h"
#include "random.h"
#include "workload.h"

namespace derate::bench_cuda {

inline void check_cuda(cudaError_t error, const char* call, const char* file, int line) {
  if (error == cudaSuccess) return;
  const std::string place = std::string(file) + ":" + std::to_string(line);
  const bool no_driver = error == cudaErrorInsufficientDriver;
  throw Failure(no_driver ? exit_code::kNoDriver : exit_code::kGpuFailed,
                place.substr(place.rfind('/') + 1) + ": " + call + ": " +
                    cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

#define CUDA_CHECK(call) check_cuda((call), #call, __FILE__, __LINE__)

// Memory of the GPU, freed with the last copy of the pointer; steps hold one.
template <class T>
std::shared_ptr<T[]> device_array(std::size_t count) {
  std::size_t free_bytes = 0, total_bytes = 0;
  CUDA_CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
  if (count > free_bytes / sizeof(T))
    throw Failure(exit_code::kGpuFailed,
                  "out of GPU memory: " + std::to_string(count * sizeof(T) >> 20) +
                      " MiB are wanted, " + std::to_string(free_bytes >> 20) +
                      " MiB are free: give a smaller --size");
  T* memory = nullptr;
  CUDA_CHECK(cudaMalloc(&memory, count * sizeof(T)));
  return std::shared_ptr<T[]>(memory, [](T* p) { cudaFree(p); });
}

struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Event = std::unique_ptr<CUevent_st, DestroyEvent>;

// Tells when what is queued now has ended; `flags` as cudaEventCreateWithFlags takes them.
inline Event recorded_event(Stream stream, unsigned flags) {
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, flags));
  Event owner(event);
  CUDA_CHECK(cudaEventRecord(event, stream));
  return owner;
}

template <class T>
std::vector<T> to_host(const T* device, std::size_t count) {
  std::vector<T> host(count);
  CUDA_CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
  return host;
}

// Runs one step to its end. A failed launch is kept by CUDA until it is asked for.
inline void run_once(const Phase& phase) {
  phase.step(nullptr);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaDeviceSynchronize());
}

// Compares what the GPU made with what is right.
class Comparison {
 public:
  void add(double made, double right) {
    const double error = std::fabs(made - right);
    if (!(error <= largest_error_)) largest_error_ = std::isnan(error) ? kInfinity : error;
    largest_value_ = std::fmax(largest_value_, std::fabs(right));
  }
  Check against(double allowed_error) const {
    const double relative = largest_error_ == 0 ? 0 : largest_error_ / largest_value_;
    return {relative, allowed_error};
  }

 private:
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double largest_error_ = 0;
  double largest_value_ = 0;
};

// A stride that visits about `samples` of `count` values, in all columns of a matrix.
inline std::size_t sample_stride(std::size_t count, std::size_t samples) {
  return count <= samples ? 1 : count / samples | 1;
}

inline unsigned blocks_for(std::size_t count, unsigned a_block) {
  return static_cast<unsigned>((count + a_block - 1) / a_block);
}

#ifdef __CUDACC__

template <class T, class Values>
__global__ void fill_values(T* out, std::size_t count, Values values) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i < count) out[i] = static_cast<T>(values(i));
}

// Queues values(0), values(1), ... for a vector of the GPU.
template <class T, class Values>
void fill_array(const std::shared_ptr<T[]>& out, std::size_t count, const Values& values,
                Stream stream) {
  fill_values<<<blocks_for(count, 256), 256, 0, stream>>>(out.get(), count, values);
  CUDA_CHECK(cudaGetLastError());
}

template <class T, class Values>
std::shared_ptr<T[]> filled_array(std::size_t count, const Values& values) {
  auto out = device_array<T>(count);
  fill_array(out, count, values, nullptr);
  return out;
}

#endif

}  // namespace derate::bench_cuda
