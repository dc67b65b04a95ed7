#include "advise/advice.h"

#include <array>

#include "base/check.h"

namespace derate {
namespace {

using Tries = std::span<const char* const>;

constexpr std::array kHeat{
    "look at fans, air flow and inlet temperature; compare with the GPUs beside it",
    "lower the clock yourself, as heat does it worse: derate policy set assure",
    "a lower power limit, where the room cannot be cooled"};
constexpr std::array kPower{
    "nvidia-smi -q -d POWER: is the limit the factory's? A laptop's is its maker's: the mains "
    "instead of the battery, its performance mode",
    "if HW Power Brake is among the reasons: the power supplies of the machine or the rack",
    "derate policy set assure: the clock that is most efficient within the limit"};
constexpr std::array kIdleContext{"end the process, or let it free the GPU between its work",
                                  "share the GPU: MPS, MIG, or a scheduler that gives it to others",
                                  "derate status names the process and its user"};
constexpr std::array kIdleClock{"derate policy set assure: an idle GPU gets its lowest clock",
                                "end the process, or let it free the GPU between its work",
                                "is a clock locked? nvidia-smi -q -d CLOCK"};
constexpr std::array kCheckpoint{
    "write checkpoints beside the work: torch.distributed.checkpoint.async_save",
    "write them less often: as often as failures make it worth while",
    "local disk or memory first, slow storage afterwards"};
constexpr std::array kTransfers{
    "pinned host memory and asynchronous copies: pin_memory=True, non_blocking=True",
    "keep on the GPU what is used again; copy once, not each step",
    "less offloading: a smaller model state (bf16, 8-bit optimiser), or more GPUs to shard it",
    "is the link as wide as it should be? nvidia-smi -q -d PCIE"};
constexpr std::array kDataLoader{
    "more loader workers and prefetching: num_workers, prefetch_factor, persistent_workers=True",
    "decode and augment on the GPU: DALI; or once, ahead of time",
    "faster storage, larger files; more CPU cores for the container"};
constexpr std::array kHost{
    "profile the host side: py-spy, nsys profile, torch.profiler",
    "take synchronisation out of the loop: .item(), print, logging each step",
    "tokenise and preprocess in other processes; more CPU cores for the container"};
constexpr std::array kWaiting{
    "nsys profile --trace=cuda,osrt: what does the host do while the GPU stands still?",
    "data loading: more workers, prefetching, pinned memory",
    "synchronisation in the loop, checkpoints, offloading: the counters of this GPU do not tell"};
constexpr std::array kLaunches{
    "CUDA graphs: torch.compile(mode=\"reduce-overhead\"), torch.cuda.graphs",
    "fused kernels: torch.compile, fused optimisers, TensorRT or ONNX Runtime for inference",
    "a larger batch"};
constexpr std::array kSmallKernels{
    "a larger batch; gradient accumulation is no substitute",
    "several jobs on the GPU: MPS, or MIG where they must be kept apart",
    "fused kernels: torch.compile, TensorRT or ONNX Runtime for inference"};
constexpr std::array kOccupancy{
    "ncu --set full: what limits the warps, registers, shared memory or the block's size?",
    "smaller tiles or more blocks; __launch_bounds__",
    "more independent work for each thread, so that fewer warps suffice"};
constexpr std::array kUnderused{
    "ncu and nsys: kernels too small, launched too slowly, or waiting for latency?",
    "a larger batch, CUDA graphs, fused kernels", "several jobs on the GPU: MPS"};
constexpr std::array kMemory{
    "derate policy set assure: a lower clock costs this work little and saves much",
    "fused kernels: torch.compile, FlashAttention, fused optimisers",
    "smaller data: bf16 or fp8, quantised weights for inference; a larger batch for decoding"};
constexpr std::array kTensorIdle{
    "TF32: torch.backends.cuda.matmul.allow_tf32 = True (Ampere and later)",
    "mixed precision: torch.autocast with bf16, or fp16 with a gradient scaler",
    "where the work is no matrix product, nothing: FP32 is then what it needs"};
constexpr std::array kImbalance{
    "make the batches' work equal: bucket by length, drop no rank's remainder",
    "a GPU that is slower by itself: its clock, heat and limits (derate status)",
    "derate run for all GPUs of the job, so that they have one clock"};

constexpr const char* kBusyPage =
    "https://docs.nvidia.com/deeplearning/performance/dl-performance-getting-started/index.html";
constexpr const char* kGuide =
    "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html";
constexpr const char* kTuning = "https://pytorch.org/tutorials/recipes/recipes/tuning_guide.html";

constexpr std::array kCatalogue{
    FindingInfo{Finding::heat, "thermal", "Heat slows the GPU down.", "clock event reasons, clock",
                kHeat,
                "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"},
    FindingInfo{Finding::power_limit, "power_cap", "The power limit slows the GPU down.",
                "clock event reasons, clock", kPower,
                "https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"},
    FindingInfo{Finding::idle_context, "idle_context",
                "A process holds the GPU and runs nothing on it.", "utilisation, process list",
                kIdleContext, "https://docs.nvidia.com/deploy/mps/index.html"},
    FindingInfo{Finding::idle_clock, "idle_clock_high",
                "Nothing runs, and a process keeps the clock high.",
                "utilisation, process list, clock", kIdleClock,
                "https://docs.nvidia.com/deploy/driver-persistence/index.html"},
    FindingInfo{Finding::checkpoint, "checkpoint",
                "The work stops for long now and then, to copy its state out.",
                "GPM: graphics, PCIe", kCheckpoint,
                "https://pytorch.org/docs/stable/distributed.checkpoint.html"},
    FindingInfo{Finding::transfers, "pcie_bound", "Copies over PCIe take the time.",
                "GPM: graphics, PCIe", kTransfers, kGuide},
    FindingInfo{Finding::data_loader, "data_loader", "The GPU waits for its input.",
                "GPM: graphics, PCIe", kDataLoader, kTuning},
    FindingInfo{Finding::host, "host_bound", "The GPU waits for the host.", "GPM: graphics, PCIe",
                kHost, kTuning},
    FindingInfo{Finding::waiting, "waiting", "The GPU waits for the host, its data or its disks.",
                "utilisation", kWaiting, kTuning},
    FindingInfo{Finding::launches, "launch_bound",
                "Kernels are so small that launching them takes the time.",
                "GPM: graphics, SM, occupancy", kLaunches,
                "https://developer.nvidia.com/blog/cuda-graphs/"},
    FindingInfo{Finding::small_kernels, "small_batch", "Kernels are too small to fill the GPU.",
                "GPM: graphics, SM", kSmallKernels, kBusyPage},
    FindingInfo{Finding::occupancy, "low_occupancy",
                "Few warps are resident and wait for latency, and no unit is busy.",
                "GPM: SM, occupancy, pipes", kOccupancy, kGuide},
    FindingInfo{Finding::underused, "underused",
                "Kernels run all the time and use little of the GPU.", "utilisation, power",
                kUnderused, kBusyPage},
    FindingInfo{Finding::memory, "memory_bound", "The memory's bandwidth sets the pace.",
                "GPM: DRAM; without it memory utilisation", kMemory,
                "https://docs.nvidia.com/deeplearning/performance/dl-performance-memory-limited/"
                "index.html"},
    FindingInfo{Finding::tensor_idle, "tensor_idle",
                "The FP32 units compute while the tensor cores are idle.",
                "GPM: FP32, tensor, occupancy", kTensorIdle,
                "https://docs.nvidia.com/deeplearning/performance/mixed-precision-training/"
                "index.html"},
    FindingInfo{Finding::imbalance, "imbalance", "GPUs of one job wait for the slowest of them.",
                "SM or power of all GPUs", kImbalance,
                "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/index.html"},
};

}  // namespace

std::span<const FindingInfo> finding_catalogue() { return kCatalogue; }

const FindingInfo& info_of(Finding finding) {
  const auto at = static_cast<std::size_t>(finding);
  CHECK(at < kCatalogue.size() && kCatalogue[at].finding == finding);
  return kCatalogue[at];
}

std::vector<std::string> tries_under(std::string_view policy, Finding finding) {
  const std::string set = "derate policy set " + std::string(policy);
  std::vector<std::string> out;
  for (const std::string_view each : info_of(finding).tries)
    if (policy.empty() || each.find(set) == std::string_view::npos) out.emplace_back(each);
  return out;
}

const char* to_string(Certainty certainty) {
  return certainty == Certainty::sure ? "sure" : "likely";
}

}  // namespace derate
