// Requests of clients to the server of the simulated GPUs, and its replies: one fixed-size packet
// each way on a SOCK_SEQPACKET socket. Reading sensors does not come this way (shared_state.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace derate::fakenvml {

inline constexpr std::uint32_t kProtocolMagic = 0x31514644;  // "DFQ1"
inline constexpr std::uint32_t kProtocolVersion = 2;

enum class Op : std::uint32_t {
  hello = 0,
  // The writes of NVML, in its units: a, b.
  set_locked_clocks = 1,  // lowest, highest MHz
  reset_locked_clocks = 2,
  set_memory_locked_clocks = 3,  // lowest, highest MHz
  reset_memory_locked_clocks = 4,
  set_power_limit = 5,         // mW
  set_application_clocks = 6,  // memory, SM MHz
  reset_application_clocks = 7,
  set_persistence = 8,    // 0 or 1
  set_mig = 9,            // 0 or 1
  set_clock_offset = 10,  // nvml::ClockType; MHz, signed
  set_power_mizer = 11,
  update_power_profiles = 12,  // 0 to clear, 1 to add, 2 to replace; bits
  // Jobs; one a connection, and it ends with it.
  // name: the workload, path: its tables or nothing, number: work in seconds, a: with MIG the
  // instance's id
  start_job = 20,
  job_status = 21,
  partition = 22,  // MIG mode with the instances that `name` lists: "3g,2g,1g,1g"; jobs end
  // A job that serves a language model; `path`: its requests (CSV) or nothing, `engine`.
  start_engine = 23,
  engine_status = 24,  // the reply has `engine`
  // Faults.
  call_fault = 30,    // name: the call, a: code, b: 1 hangs, c: calls to let pass, d: times
  gpu_fault = 31,     // a: a GpuFault
  kill_writer = 32,   // a: 0 before or 1 after the write took effect, b: which write from now on
  clear_faults = 33,  // of the GPU, or all
  count_call = 34,    // a: the fault's id; value 1: it strikes
  xid = 35,           // a: the number of an Xid error that the driver reports
};

enum class GpuFault : std::uint32_t {
  lost = 1,
  writes_ignored = 2,
  counters_frozen = 3,
  counters_backwards = 4,
  counters_wrapped = 5,
  counters_jump = 6,
  absurd = 7,
  mig = 8,
};

inline constexpr std::uint32_t kEveryGpu = ~0u;

// The engine that a job runs: its name, its limits and the requests that come.
struct EngineOrder {
  char name[32] = {};                                   // empty: the chip's first
  std::uint32_t most_running = 0, step_tokens = 0;      // 0: the engine's own
  std::uint64_t seed = 1;                               // of when requests come
  double rate = 1;                                      // requests a second
  double burst_times = 1, burst_at_s = 0, burst_s = 0;  // the rate's factor, from, length
};

// Its metrics; counts by edges as vLLM has them, not cumulative (device/sim/serving).
struct EngineNow {
  double running = 0, waiting = 0, kv_share = 0;
  double prompt_tokens = 0, generated_tokens = 0, steps = 0;
  double between_tokens[20] = {}, between_tokens_s = 0;
  double first_token[24] = {}, first_token_s = 0;
};

struct Request {
  std::uint32_t magic = kProtocolMagic;
  std::uint32_t version = kProtocolVersion;
  Op op = Op::hello;
  std::uint32_t gpu = kEveryGpu;
  std::uint32_t a = 0, b = 0, c = 0, d = 0;
  double number = 0;
  char name[64] = {};
  char path[512] = {};
  EngineOrder engine = {};
};

struct Reply {
  std::uint32_t magic = kProtocolMagic;
  std::uint32_t version = kProtocolVersion;
  std::uint32_t code = 0;  // nvml::Return
  std::uint32_t value = 0;
  // Of a job.
  std::uint32_t finished = 0;
  std::uint32_t reserved = 0;
  double work_done_s = 0, time_s = 0, joules = 0;
  char message[256] = {};  // why not, for people
  EngineNow engine = {};   // of a job that serves
};

// `text` cut to what fits, with an end.
template <std::size_t Size>
void put_text(char (&out)[Size], std::string_view text) {
  const std::size_t length = text.size() < Size - 1 ? text.size() : Size - 1;
  text.copy(out, length);
  out[length] = '\0';
}
// A text from another process need not end.
template <std::size_t Size>
std::string get_text(const char (&text)[Size]) {
  const std::string_view whole(text, Size);
  return std::string(whole.substr(0, whole.find('\0')));
}

}  // namespace derate::fakenvml
