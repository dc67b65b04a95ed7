#include "workloads.h"

#include <iterator>

namespace derate::bench_cuda {
namespace {

constexpr auto kMultiple = SizeRule::multiple_of_lowest;
constexpr auto kPower = SizeRule::power_of_two;

// Default sizes are for GPUs of 16 GB and more with up to 60 MB of cache: what is to be bound by
// device memory does not fit the cache, what is to be bound by the cache does.
constexpr Workload kWorkloads[] = {
    {.name = "black-scholes",
     .work_unit = "Goption",
     .sizes = {"pairs of a call and a put", 1 << 26, 1 << 10, 1 << 30, kMultiple},
     .stresses = "device memory at its limit, with FP32 arithmetic and special functions",
     .prepare = prepare_black_scholes},
    {.name = "device-copy",
     .work_unit = "GB",
     .sizes = {"MiB a copy", 512, 1, 1 << 17, kMultiple},
     .stresses = "device memory alone: reads and writes, counted both",
     .prepare = prepare_device_copy},
    {.name = "fft-convolution",
     .work_unit = "Gpixel",
     .sizes = {"side of the square images", 2048, 64, 4096, kPower},
     .stresses = "shared memory, cache and device memory: rows and columns of 2D FFTs",
     .prepare = prepare_fft_convolution},
    {.name = "gemm-tensor",
     .work_unit = "TFLOP",
     .sizes = {"side of the square matrices", 8192, 128, 1 << 16, kMultiple},
     .stresses = "tensor cores: FP16 in, FP32 accumulated; the most power",
     .prepare = prepare_gemm_tensor},
    {.name = "walsh",
     .work_unit = "Gpoint",
     .sizes = {"points", 1 << 26, 1 << 12, 1 << 30, kPower},
     .stresses = "device memory in strides, with butterflies in registers and shared memory",
     .prepare = prepare_walsh},
    {.name = "reduction",
     .work_unit = "GB",
     .sizes = {"FP32 numbers", 1 << 27, 1 << 10, std::int64_t{1} << 33, kMultiple},
     .stresses = "device memory, reads only, and a synchronisation of the whole grid",
     .prepare = prepare_reduction},
    {.name = "sort",
     .work_unit = "Gkey",
     .sizes = {"keys of 32 bits", 1 << 22, 1 << 11, 1 << 30, kPower},
     .stresses = "shared memory and cache: many short kernels of a bitonic network",
     .prepare = prepare_sort},
    {.name = "transpose",
     .work_unit = "GB",
     .sizes = {"side of the square FP32 matrix", 2048, 32, 1 << 16, kMultiple},
     .stresses = "cache and shared memory (device memory from about 3072 on)",
     .prepare = prepare_transpose},
    {.name = "stream-triad",
     .work_unit = "GB",
     .sizes = {"FP64 numbers a vector", 1 << 26, 1 << 10, std::int64_t{1} << 32, kMultiple},
     .stresses = "device memory: a = b + s c, two reads and a write",
     .prepare = prepare_stream_triad},
    {.name = "gemm-fp64",
     .work_unit = "TFLOP",
     .sizes = {"side of the square matrices", 4096, 128, 1 << 15, kMultiple},
     .stresses = "FP64 units without tensor cores; few on GPUs for graphics",
     .prepare = prepare_gemm_fp64},
    {.name = "decode-gemv",
     .work_unit = "token",
     .sizes = {"width of the model, 16 layers", 8192, 256, 1 << 15, kMultiple},
     .stresses = "device memory, as a language model that decodes: all weights once a token",
     .prepare = prepare_decode_gemv},
    {.name = "launch-bound",
     .work_unit = "kernel",
     .sizes = {"threads a kernel", 256, 32, 1024, kMultiple},
     .stresses = "launches: tiny kernels one after the other, the GPU all but empty",
     .prepare = prepare_launch_bound},
    {.name = "two-phase",
     .work_unit = "pass",
     .sizes = {"side of the matrices in the compute phase", 4096, 128, 1 << 16, kMultiple},
     .stresses = "tensor cores and device memory in turns: a product, a triad a pass",
     .prepare = prepare_two_phase},
};

}  // namespace

const std::vector<Workload>& workloads() {
  static const std::vector<Workload> table(std::begin(kWorkloads), std::end(kWorkloads));
  return table;
}

}  // namespace derate::bench_cuda
