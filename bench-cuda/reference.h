// What the workloads compute, on the CPU in FP64 and in the plainest way.
#pragma once

#include <cstdint>
#include <vector>

namespace derate::bench_cuda {

struct OptionPrices {
  double call;
  double put;
};

// European options by Black and Scholes (1973); rate and volatility a year.
OptionPrices black_scholes(double spot, double strike, double years, double rate,
                           double volatility);

// Value k of the Walsh-Hadamard transform in natural order, not normalised.
double walsh_at(const std::vector<float>& input, std::uint64_t k);

// Weights (side x side, row by row) with their middle on the pixel; the image wraps at its edges.
// `image` holds width x width numbers of `channels` channels, interleaved.
struct Image {
  const std::vector<float>& values;
  int width;
  int channels;
};
double convolution_at(const Image& image, int channel, const std::vector<float>& weights, int side,
                      int y, int x);

// The sum of a(k) * b(k) for k from 0 to count - 1.
template <class A, class B>
double dot(std::int64_t count, const A& a, const B& b) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += a(k) * b(k);
  return sum;
}

}  // namespace derate::bench_cuda
