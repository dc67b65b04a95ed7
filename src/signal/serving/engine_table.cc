#include "signal/serving/engine_table.h"

#include <array>

namespace derate {
namespace {

// With --enable-metrics-for-all-schedulers SGLang's ranks of tensor, pipeline and expert
// parallelism report each the requests of their data-parallel rank (dp_rank).
constexpr std::array<std::string_view, 3> kSglangCopies = {"moe_ep_rank", "pp_rank", "tp_rank"};

// By its loggers.py, vLLM 0.11 deprecates time_per_output_token_seconds: the newer name has the
// same observations.
constexpr EngineNames kVllm = {
    .engine = "vLLM",
    .model_label = "model_name",
    .between_tokens = {.name = "vllm:inter_token_latency_seconds",
                       .older = "vllm:time_per_output_token_seconds"},
    .first_token = {.name = "vllm:time_to_first_token_seconds"},
    .running = {.name = "vllm:num_requests_running"},
    .waiting = {.name = "vllm:num_requests_waiting"},
    .kv_share = {.name = "vllm:kv_cache_usage_perc", .older = "vllm:gpu_cache_usage_perc"},
    .prompt_tokens = {.name = "vllm:prompt_tokens_total"},
    .generated_tokens = {.name = "vllm:generation_tokens_total"},
    .steps = {.name = "vllm:iteration_tokens_total_count"},
    .source =
        "vllm-project/vllm@0328b592a3d3, docs/design/metrics.md; "
        "vllm-project/vllm@005a810bc40f, vllm/v1/metrics/loggers.py (older names, steps)",
};

// SGLang has no count that we know to be of each step. With priority scheduling, a gauge with an
// empty priority is the total, and the others are its parts; counters and histograms have no total.
constexpr EngineNames kSglang = {
    .engine = "SGLang",
    .model_label = "model_name",
    .between_tokens = {.name = "sglang:inter_token_latency_seconds"},
    .first_token = {.name = "sglang:time_to_first_token_seconds"},
    .running = {.name = "sglang:num_running_reqs"},
    .waiting = {.name = "sglang:num_queue_reqs"},
    .kv_share = {.name = "sglang:token_usage"},
    .prompt_tokens = {.name = "sglang:prompt_tokens_total"},
    .generated_tokens = {.name = "sglang:generation_tokens_total"},
    .part_label = "priority",
    .copy_labels = kSglangCopies,
    .source =
        "sgl-project/sglang@016d8605e458 and @44cedc2b9c7d, "
        "python/sglang/srt/observability/metrics_collector.py",
};

// Its histogram trtllm_time_per_output_token_seconds has one mean a request.
constexpr EngineNames kTensorRtLlm = {
    .engine = "TensorRT-LLM (trtllm-serve)",
    .model_label = "model_name",
    .first_token = {.name = "trtllm_time_to_first_token_seconds"},
    .running = {.name = "trtllm_num_requests_running"},
    .waiting = {.name = "trtllm_num_requests_waiting"},
    .kv_share = {.name = "trtllm_kv_cache_utilization"},
    .prompt_tokens = {.name = "trtllm_prompt_tokens_total"},
    .generated_tokens = {.name = "trtllm_generation_tokens_total"},
    .source = "NVIDIA/TensorRT-LLM@050f80def8df, tensorrt_llm/metrics/collector.py",
};

// Triton publishes gauges of the backend, and no histogram of its tokens. The versions below lack
// "waiting" and "fraction", which kubernetes-sigs/gateway-api-inference-extension reads of later
// ones.
constexpr EngineNames kTriton = {
    .engine = "TensorRT-LLM (Triton)",
    .model_label = "model",
    .running = {.name = "nv_trt_llm_request_metrics",
                .label = "request_type",
                .value = "scheduled"},
    .waiting = {.name = "nv_trt_llm_request_metrics", .label = "request_type", .value = "waiting"},
    .kv_share = {.name = "nv_trt_llm_kv_cache_block_metrics",
                 .label = "kv_cache_block_type",
                 .value = "fraction"},
    .steps = {.name = "nv_trt_llm_general_metrics",
              .label = "general_type",
              .value = "iteration_counter"},
    .source =
        "triton-inference-server/tensorrtllm_backend@39ba55a74526, README.md; @27e4bfbd3acb, "
        "inflight_batcher_llm/src/custom_metrics_reporter/custom_metrics_reporter.cc",
};

// Its histogram tgi_request_mean_time_per_token_duration has one mean a request.
constexpr EngineNames kTgi = {
    .engine = "TGI",
    .model_label = "",
    .running = {.name = "tgi_batch_current_size"},
    .waiting = {.name = "tgi_queue_size"},
    .prompt_tokens = {.name = "tgi_request_input_length_sum"},
    .generated_tokens = {.name = "tgi_request_generated_tokens_sum"},
    .steps = {.name = "tgi_batch_inference_count"},  // a counter, by method
    .source =
        "huggingface/text-generation-inference@db931fcf42da, router/src/server.rs, "
        "router/src/validation.rs, backends/v3/src/backend.rs",
};

// llama.cpp publishes mean rates, and no histogram. Its README lacks n_decode_total, which pages of
// servers have.
constexpr EngineNames kLlamaCpp = {
    .engine = "llama.cpp",
    .model_label = "",
    .running = {.name = "llamacpp:requests_processing"},
    .waiting = {.name = "llamacpp:requests_deferred"},
    .kv_share = {.name = "llamacpp:kv_cache_usage_ratio"},
    .prompt_tokens = {.name = "llamacpp:prompt_tokens_total"},
    .generated_tokens = {.name = "llamacpp:tokens_predicted_total"},
    .steps = {.name = "llamacpp:n_decode_total"},
    .source = "ggml-org/llama.cpp@25d5b0c53f9a, tools/server/README.md",
};

// A frontend: intervals are as its clients get them, over all its workers. A request is in flight
// from its arrival to its end, and queued until its first token.
constexpr EngineNames kDynamo = {
    .engine = "Dynamo (frontend)",
    .model_label = "model",
    .between_tokens = {.name = "dynamo_frontend_inter_token_latency_seconds"},
    .first_token = {.name = "dynamo_frontend_time_to_first_token_seconds"},
    .running = {.name = "dynamo_frontend_inflight_requests"},
    .waiting = {.name = "dynamo_frontend_queued_requests"},
    .prompt_tokens = {.name = "dynamo_frontend_input_sequence_tokens_sum"},
    .generated_tokens = {.name = "dynamo_frontend_output_tokens_total"},
    .running_has_waiting = true,
    .source = "ai-dynamo/dynamo@79a21ca4f520, lib/llm/src/http/service/metrics.rs",
};

constexpr std::array<EngineNames, 7> kEngines = {kVllm, kSglang,   kTensorRtLlm, kTriton,
                                                 kTgi,  kLlamaCpp, kDynamo};

constexpr std::array<EngineRole, 8> kRoles = {{
    {.text = "intervals between tokens",
     .kind = RoleKind::histogram,
     .name = &EngineNames::between_tokens,
     .histogram = &ServingState::between_tokens},
    {.text = "times to the first token",
     .kind = RoleKind::histogram,
     .name = &EngineNames::first_token,
     .histogram = &ServingState::first_token},
    {.text = "running requests",
     .kind = RoleKind::gauge,
     .name = &EngineNames::running,
     .number = &ServingState::running},
    {.text = "waiting requests",
     .kind = RoleKind::gauge,
     .name = &EngineNames::waiting,
     .number = &ServingState::waiting},
    {.text = "share of the KV cache",
     .kind = RoleKind::share,
     .name = &EngineNames::kv_share,
     .number = &ServingState::kv_share},
    {.text = "prompt tokens",
     .kind = RoleKind::counter,
     .name = &EngineNames::prompt_tokens,
     .number = &ServingState::prompt_tokens},
    {.text = "generated tokens",
     .kind = RoleKind::counter,
     .name = &EngineNames::generated_tokens,
     .number = &ServingState::generated_tokens},
    {.text = "engine steps",
     .kind = RoleKind::counter,
     .name = &EngineNames::steps,
     .number = &ServingState::steps},
}};

}  // namespace

std::span<const EngineNames> engine_table() { return kEngines; }
std::span<const EngineRole> engine_roles() { return kRoles; }

EngineNames engine_names(const ConfiguredEngine& configured) {
  return {.engine = "the configured engine",
          .model_label = configured.model_label,
          .between_tokens = {.name = configured.between_tokens},
          .first_token = {.name = configured.first_token},
          .running = {.name = configured.running},
          .waiting = {.name = configured.waiting},
          .kv_share = {.name = configured.kv_share},
          .prompt_tokens = {.name = configured.prompt_tokens},
          .generated_tokens = {.name = configured.generated_tokens},
          .steps = {.name = configured.steps},
          .source = "the configuration"};
}

}  // namespace derate
