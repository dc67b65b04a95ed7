// Prices of European options: five streams of device memory, some 80 instructions a pair.
#include "cuda.h"
#include "reference.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr float kRate = 0.02f;        // a year
constexpr float kVolatility = 0.30f;  // a year
constexpr std::size_t kSamples = 1 << 20;

// Abramowitz and Stegun 26.2.17: off by 7.5e-8 at most.
__device__ float normal_cdf(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  const float series =
      k * (0.319381530f +
           k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  const float tail = 0.39894228040f * __expf(-0.5f * d * d) * series;
  return d > 0 ? 1.0f - tail : tail;
}

__global__ void price(const float* spot, const float* strike, const float* years, float* call,
                      float* put, std::size_t count) {
  const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
  if (i >= count) return;
  const float deviation = kVolatility * sqrtf(years[i]);
  const float d1 =
      __fdividef(__logf(__fdividef(spot[i], strike[i])) + kRate * years[i], deviation) +
      deviation / 2;
  const float in_money = normal_cdf(d1), exercised = normal_cdf(d1 - deviation);
  const float discounted = strike[i] * __expf(-kRate * years[i]);
  call[i] = spot[i] * in_money - discounted * exercised;
  put[i] = discounted * (1 - exercised) - spot[i] * (1 - in_money);
}

}  // namespace

Job prepare_black_scholes(const JobOptions& options) {
  const std::size_t count = options.size;
  const Uniform spots{options.seed, 5, 30}, strikes{options.seed + 1, 1, 100},
      terms{options.seed + 2, 0.25f, 10};
  const auto spot = device_array<float>(count), strike = device_array<float>(count),
             years = device_array<float>(count);
  const auto call = device_array<float>(count), put = device_array<float>(count);
  const auto fill = [=](double share, Stream stream) {
    fill_array(spot, count, mixed(spots, share, spots.lowest), stream);
    fill_array(strike, count, mixed(strikes, share, strikes.lowest), stream);
    fill_array(years, count, mixed(terms, share, terms.lowest), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    price<<<blocks_for(count, 256), 256, 0, stream>>>(spot.get(), strike.get(), years.get(),
                                                      call.get(), put.get(), count);
  };
  Job job{{{"price", 2e-9 * count, step}}, {}, fill};
  run_once(job.phases.front());

  const auto calls = to_host(call.get(), count), puts = to_host(put.get(), count);
  Comparison comparison;
  for (std::size_t i = 0; i < count; i += sample_stride(count, kSamples)) {
    const OptionPrices right = black_scholes(spots(i), strikes(i), terms(i), kRate, kVolatility);
    comparison.add(calls[i], right.call);
    comparison.add(puts[i], right.put);
  }
  // The intrinsics are good to some 2^-21 of prices up to 100.
  job.check = comparison.against(1e-5);
  return job;
}

}  // namespace derate::bench_cuda
