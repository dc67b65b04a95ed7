// Images convolved by 2D FFTs, rows and columns in turn. Decimation in frequency leaves the
// spectrum in bit-reversed order and the inverse takes it so: nothing is ever reordered. A complex
// image carries two real ones, as the weights are real.
#include <vector>

#include "cuda.h"
#include "reference.h"
#include "workloads.h"

namespace derate::bench_cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLevels = 3;   // of butterflies between two looks at shared memory
constexpr int kColumns = 4;  // a block: 32 bytes of each row, the least that memory moves
constexpr int kWeights = 7;  // side
constexpr int kSamples = 1024;

__device__ float2 plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ float2 minus(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ float2 times(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
__device__ float2 conjugate(float2 a) { return make_float2(a.x, -a.y); }

// e^(-2 pi i k / n) for k < n / 2.
__global__ void fill_roots(float2* roots, int n) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  if (k < n / 2) sincospif(-2.0f * k / n, &roots[k].y, &roots[k].x);
}

enum class Direction { forward, inverse };

// A gap after every 8 numbers keeps those that threads take together out of one bank.
__host__ __device__ constexpr int padded(int i) { return i + (i >> kLevels); }

// `levels` levels of butterflies over `total` numbers in shared memory, in lines of n: a thread
// takes 2^levels numbers that are `distance` apart into registers.
template <Direction direction, int levels>
__device__ void fft_levels(float2* lines, int total, int n, int distance, const float2* roots) {
  constexpr int numbers = 1 << levels;
  constexpr bool forward = direction == Direction::forward;
  __syncthreads();
  for (int i = threadIdx.x; i < total / numbers; i += kThreads) {
    const int within = i & (distance - 1), first = ((i - within) << levels) + within;
    float2 v[numbers];
#pragma unroll
    for (int k = 0; k < numbers; ++k) v[k] = lines[padded(first + k * distance)];
#pragma unroll
    for (int level = 0; level < levels; ++level) {
      const int half = forward ? numbers / 2 >> level : 1 << level;
#pragma unroll
      for (int k = 0; k < numbers; ++k) {
        if ((k & half) != 0) continue;
        // n / 2 / (half * distance) is the step through the roots of this level.
        const float2 root = roots[(within + k % half * distance) * (n / 2 / half / distance)];
        const float2 a = v[k], b = forward ? v[k + half] : times(v[k + half], conjugate(root));
        v[k] = plus(a, b);
        v[k + half] = forward ? times(minus(a, b), root) : minus(a, b);
      }
    }
#pragma unroll
    for (int k = 0; k < numbers; ++k) lines[padded(first + k * distance)] = v[k];
  }
}

// From far to near, ending with what three levels at a time have left over.
__device__ void forward_fft(float2* lines, int total, int n, const float2* roots) {
  constexpr auto direction = Direction::forward;
  int span = n;
  for (; span >> kLevels > 0; span >>= kLevels)
    fft_levels<direction, kLevels>(lines, total, n, span >> kLevels, roots);
  if (span == 4) fft_levels<direction, 2>(lines, total, n, 1, roots);
  if (span == 2) fft_levels<direction, 1>(lines, total, n, 1, roots);
  __syncthreads();
}

// The same levels backwards.
__device__ void inverse_fft(float2* lines, int total, int n, const float2* roots) {
  constexpr auto direction = Direction::inverse;
  int span = n;
  while (span >> kLevels > 0) span >>= kLevels;
  if (span == 4) fft_levels<direction, 2>(lines, total, n, 1, roots);
  if (span == 2) fft_levels<direction, 1>(lines, total, n, 1, roots);
  for (; span < n; span <<= kLevels) fft_levels<direction, kLevels>(lines, total, n, span, roots);
  __syncthreads();
}

extern __shared__ float2 lines[];

template <Direction direction>
__global__ void rows(const float2* in, float2* out, int n, const float2* roots) {
  const std::size_t row = std::size_t(blockIdx.x) * n;
  for (int x = threadIdx.x; x < n; x += kThreads) lines[padded(x)] = in[row + x];
  if (direction == Direction::forward)
    forward_fft(lines, n, n, roots);
  else
    inverse_fft(lines, n, n, roots);
  for (int x = threadIdx.x; x < n; x += kThreads) out[row + x] = lines[padded(x)];
}

// Columns forward; given a spectrum, also times it and back.
__global__ void columns(float2* data, const float2* spectrum, int n, const float2* roots) {
  const int left = blockIdx.x * kColumns, total = kColumns * n;
  const auto at = [&](int i) { return std::size_t(i / kColumns) * n + left + i % kColumns; };
  const auto line = [&](int i) { return padded(i % kColumns * n + i / kColumns); };
  for (int i = threadIdx.x; i < total; i += kThreads) lines[line(i)] = data[at(i)];
  forward_fft(lines, total, n, roots);
  if (spectrum != nullptr) {
    for (int i = threadIdx.x; i < total; i += kThreads)
      lines[line(i)] = times(lines[line(i)], spectrum[at(i)]);
    inverse_fft(lines, total, n, roots);
  }
  for (int i = threadIdx.x; i < total; i += kThreads) data[at(i)] = lines[line(i)];
}

struct Plan {
  int n;
  std::shared_ptr<float2[]> roots;
  unsigned row_bytes() const { return padded(n) * sizeof(float2); }
  unsigned column_bytes() const { return kColumns * row_bytes(); }
};

Plan make_plan(int n) {
  Plan plan{n, device_array<float2>(n / 2)};
  fill_roots<<<blocks_for(n / 2, 256), 256>>>(plan.roots.get(), n);
  CUDA_CHECK(cudaFuncSetAttribute(columns, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  plan.column_bytes()));
  return plan;
}

// In bit-reversed order, with the scale that two inverse transforms leave to somebody.
std::shared_ptr<float2[]> spectrum_of(const Plan& plan, const std::vector<float>& weights) {
  const int n = plan.n;
  const float scale = 1.0f / n / n;
  std::vector<float2> image(std::size_t(n) * n, float2{0, 0});
  for (int i = 0; i < kWeights * kWeights; ++i) {
    const int y = (i / kWeights - kWeights / 2 + n) % n, x = (i % kWeights - kWeights / 2 + n) % n;
    image[std::size_t(y) * n + x].x = scale * weights[i];
  }
  auto spectrum = device_array<float2>(image.size());
  CUDA_CHECK(cudaMemcpy(spectrum.get(), image.data(), image.size() * sizeof(float2),
                        cudaMemcpyHostToDevice));
  rows<Direction::forward>
      <<<n, kThreads, plan.row_bytes()>>>(spectrum.get(), spectrum.get(), n, plan.roots.get());
  columns<<<n / kColumns, kThreads, plan.column_bytes()>>>(spectrum.get(), nullptr, n,
                                                           plan.roots.get());
  CUDA_CHECK(cudaGetLastError());
  return spectrum;
}

}  // namespace

Job prepare_fft_convolution(const JobOptions& options) {
  const int n = static_cast<int>(options.size);
  const std::size_t pixels = std::size_t(n) * n;
  std::vector<float> weights;
  for (int i = 0; i < kWeights * kWeights; ++i)
    weights.push_back(Uniform{options.seed + 1, -1, 1}(i));
  const Plan plan = make_plan(n);
  const auto spectrum = spectrum_of(plan, weights);
  const auto values = device_array<float>(2 * pixels);
  const auto out = device_array<float2>(pixels);
  const auto fill = [=](double share, Stream stream) {
    fill_array(values, 2 * pixels, mixed(Uniform{options.seed, -1, 1}, share), stream);
  };
  fill(1, nullptr);
  const auto step = [=](Stream stream) {
    const auto* in = reinterpret_cast<const float2*>(values.get());
    const float2* roots = plan.roots.get();
    rows<Direction::forward><<<n, kThreads, plan.row_bytes(), stream>>>(in, out.get(), n, roots);
    columns<<<n / kColumns, kThreads, plan.column_bytes(), stream>>>(out.get(), spectrum.get(), n,
                                                                     roots);
    rows<Direction::inverse>
        <<<n, kThreads, plan.row_bytes(), stream>>>(out.get(), out.get(), n, roots);
  };
  Job job{{{"convolve", 2e-9 * pixels, step}}, {}, fill};
  run_once(job.phases.front());

  const auto input = to_host(values.get(), 2 * pixels);
  const auto convolved = to_host(out.get(), pixels);
  Comparison comparison;
  for (int i = 0; i < kSamples; ++i) {
    const std::size_t at = random_bits(options.seed + 2, i) % pixels;
    const int y = static_cast<int>(at / n), x = static_cast<int>(at % n);
    comparison.add(convolved[at].x, convolution_at({input, n, 2}, 0, weights, kWeights, y, x));
    comparison.add(convolved[at].y, convolution_at({input, n, 2}, 1, weights, kWeights, y, x));
  }
  job.check = comparison.against(1e-5);  // some 44 FP32 butterflies deep
  return job;
}

}  // namespace derate::bench_cuda
