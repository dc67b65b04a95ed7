// Input values as a function of their index: GPU and CPU make the same ones, and nothing is copied.
#pragma once

#include <cstdint>
#include <utility>

#ifdef __CUDACC__
#define DERATE_HOST_DEVICE __host__ __device__
#else
#define DERATE_HOST_DEVICE
#endif

namespace derate::bench_cuda {

// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
DERATE_HOST_DEVICE inline std::uint64_t random_bits(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// Uniform in [lowest, highest), the same to the last bit on GPU and CPU: a fused multiplication and
// addition would round once less on the GPU, and now and then to another FP16 number.
struct Uniform {
  std::uint64_t seed;
  float lowest;
  float highest;

  DERATE_HOST_DEVICE float operator()(std::uint64_t index) const {
    const float unit = static_cast<float>(random_bits(seed, index) >> 40) * 0x1p-24f;
#ifdef __CUDA_ARCH__
    return __fadd_rn(lowest, __fmul_rn(highest - lowest, unit));
#else
    return lowest + (highest - lowest) * unit;
#endif
  }
};

// values(i) for `share` of the indices, always the same ones, and `rest` for the others.
template <class Values>
struct Mixed {
  using Value = decltype(std::declval<const Values&>()(0));
  Values values;
  double share;
  Value rest;

  DERATE_HOST_DEVICE Value operator()(std::uint64_t index) const {
    const double unit = static_cast<double>(random_bits(~values.seed, index) >> 11) * 0x1p-53;
    return unit < share ? values(index) : rest;
  }
};

template <class Values>
Mixed<Values> mixed(const Values& values, double share, typename Mixed<Values>::Value rest = 0) {
  return {values, share, rest};
}

}  // namespace derate::bench_cuda
