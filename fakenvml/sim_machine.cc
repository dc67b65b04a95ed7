#include "fakenvml/sim_machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/text.h"
#include "device/nvml/nvml_abi.h"
#include "device/sim/sim_workload.h"
#include "fakenvml/sim_machine_gpu.h"

namespace derate::fakenvml {
namespace {

using nvml::Return;

Reply answer(Return code, std::string_view message = {}) {
  Reply reply;
  reply.code = static_cast<std::uint32_t>(code);
  put_text(reply.message, message);
  return reply;
}

Return code_of(const Error& error) {
  switch (error.code) {
    case Errc::not_found:
      return Return::not_found;
    case Errc::no_permission:
      return Return::no_permission;
    case Errc::not_supported:
      return Return::not_supported;
    default:
      return Return::invalid_argument;
  }
}

bool is_write(Op op) { return op >= Op::set_locked_clocks && op <= Op::update_power_profiles; }

// What anybody may ask. Tables are files that the server reads with its own rights.
bool is_free(const Request& request) {
  const Op op = request.op;
  return op == Op::hello || op == Op::job_status || op == Op::count_call ||
         op == Op::engine_status ||
         ((op == Op::start_job || op == Op::start_engine) && request.path[0] == '\0');
}

Result<Workload> workload_of(const Request& request, const SimChip& chip) {
  const std::string name = get_text(request.name), path = get_text(request.path);
  if (path.empty() && !name.empty()) return find_workload(chip, name);
  auto all = path.empty() ? TRY(built_in_workloads(chip)) : TRY(load_workload_tables(path, chip));
  for (Workload& workload : all)
    if (name.empty() || to_lower(workload.name) == to_lower(name)) return std::move(workload);
  return Error{Errc::not_found, fmt::format("{} has no workload '{}'", path, name)};
}

// Where a job goes: with MIG one of the instances, without it the GPU.
Result<std::optional<int>> instance_of(const Request& request, const SimGpu& gpu) {
  const auto named = static_cast<int>(request.a);
  if (!gpu.mig() && request.a == 0) return std::optional<int>();
  if (!gpu.mig())
    return Error{Errc::invalid_argument,
                 fmt::format("instance {}: the GPU is not in MIG mode", request.a)};
  std::string ids;
  for (const GpuInstance& instance : gpu.instances()) {
    if (instance.id == named) return std::optional(named);
    ids += fmt::format("{}{} ({})", ids.empty() ? "" : ", ", instance.id, instance.profile);
  }
  const std::string there = ids.empty() ? "it has none" : "its instances are " + ids;
  if (request.a == 0)
    return Error{Errc::invalid_argument, "the GPU is in MIG mode, which instance? " + there};
  return Error{Errc::invalid_argument, fmt::format("instance {}: {}", request.a, there)};
}

constexpr double kEngineSeconds = 4 * 3600;  // in which requests come to an engine

template <std::size_t Size>
void put_counts(double (&out)[Size], double& sum_s, const LatencyCounts& counts) {
  CHECK(counts.counts.size() <= Size);
  std::copy(counts.counts.begin(), counts.counts.end(), out);
  sum_s = counts.sum_s;
}

EngineNow engine_now(const EngineCounters& counters) {
  EngineNow out{.running = static_cast<double>(counters.running),
                .waiting = static_cast<double>(counters.waiting),
                .kv_share = std::min(1.0, counters.kv_share),
                .prompt_tokens = counters.prompt_tokens,
                .generated_tokens = counters.generated_tokens,
                .steps = static_cast<double>(counters.steps)};
  put_counts(out.between_tokens, out.between_tokens_s, counters.between_tokens);
  put_counts(out.first_token, out.first_token_s, counters.first_token);
  return out;
}

// For people who look at the GPU's processes: the program, as the kernel has it.
std::string program_of(pid_t pid) {
  const auto text = read_file(fmt::format("/proc/{}/comm", pid));
  return text.ok() ? std::string(trim(split(*text, '\n').front())) : std::string();
}

}  // namespace

struct SimMachine::Counted {
  std::uint32_t id = 0, skip = 0, times = 0;
  bool endless = false;
};

SimMachine::SimMachine(const MachineOptions& options, State& state)
    : options_(options), state_(state) {
  CHECK(!options.chips.empty() && options.chips.size() <= kGpusMax);
  for (std::size_t i = 0; i < options.chips.size(); ++i) {
    gpus_.push_back(std::make_unique<Gpu>(*options.chips[i], static_cast<int>(i), options));
    state_.identity[i] = gpus_[i]->identity();
    state_.identity[i].numbers.minor =
        i < options.minors.size() ? options.minors[i] : static_cast<std::uint32_t>(i);
  }
  state_.magic = kStateMagic;
  state_.version = kStateVersion;
  state_.size = sizeof(State);
  state_.gpus = static_cast<std::uint32_t>(gpus_.size());
  publish_faults();
  advance_to(Duration::zero());
}

SimMachine::~SimMachine() { state_.closed.store(1); }

const SimGpu& SimMachine::gpu(std::size_t index) const { return gpus_.at(index)->sim; }

void SimMachine::advance_to(Duration now) {
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    gpus_[i]->advance_to(now);
    gpus_[i]->publish(state_.gpu[i]);
  }
  state_.steps.fetch_add(1);
}

// --- requests ------------------------------------------------------------------------------------

Outcome SimMachine::handle(const Request& request, const Peer& peer) {
  if (request.magic != kProtocolMagic || request.version != kProtocolVersion)
    return {answer(Return::argument_version_mismatch, "this server speaks another version")};
  const bool allowed = peer.uid == 0 || peer.uid == options_.owner;
  if (!is_free(request) && !allowed)
    return {answer(Return::no_permission, "the server belongs to another user")};
  if (request.gpu != kEveryGpu && request.gpu >= gpus_.size())
    return {answer(Return::invalid_argument,
                   fmt::format("GPU {}: there are {}", request.gpu, gpus_.size()))};
  bool kill_after = false;
  if (is_write(request.op) && kill_.at > 0 && --kill_.at == 0) {
    if (!kill_.after) return {{}, true};
    kill_after = true;
  }
  Outcome outcome = perform(request, peer);
  outcome.kill = kill_after;
  if (request.gpu != kEveryGpu) gpus_[request.gpu]->publish(state_.gpu[request.gpu]);
  return outcome;
}

Outcome SimMachine::perform(const Request& request, const Peer& peer) {
  if (is_write(request.op)) return write_setting(request);
  switch (request.op) {
    case Op::hello:
      return {};
    case Op::start_job:
      return {start_job(request, peer)};
    case Op::job_status:
      return {job_status(peer)};
    case Op::start_engine:
      return {start_engine(request, peer)};
    case Op::engine_status:
      return {engine_status(peer)};
    case Op::partition:
      return {partition(request)};
    case Op::call_fault:
      return {add_call_fault(request)};
    case Op::gpu_fault:
      return {add_gpu_fault(request)};
    case Op::kill_writer:
      if (request.a > 1 || request.b == 0) return {answer(Return::invalid_argument)};
      kill_ = {request.a == 1, request.b};
      return {};
    case Op::clear_faults:
      return {clear_faults(request)};
    case Op::count_call:
      return {count_call(request)};
    case Op::xid:
      return {report_xid(request)};
    default:
      return {answer(Return::invalid_argument, "no such request")};
  }
}

void SimMachine::forget(std::uint64_t connection, bool last) {
  for (auto& gpu : gpus_) {
    for (const Job& job : gpu->jobs)
      if (job.connection == connection) gpu->sim.remove(job.tenant);
    std::erase_if(gpu->jobs, [&](const Job& job) { return job.connection == connection; });
    gpu->sample_processes();
    // Without persistence the driver forgets a GPU that nobody uses.
    if (last && !gpu->persistence) gpu->forget_settings();
  }
}

Outcome SimMachine::write_setting(const Request& request) {
  if (request.gpu == kEveryGpu) return {answer(Return::invalid_argument, "which GPU?")};
  Gpu& gpu = *gpus_[request.gpu];
  if (gpu.lost) return {answer(Return::gpu_is_lost)};
  const Return code = gpu.write(request);
  if (code == Return::success) ++gpu.writes;
  return {answer(code)};
}

// --- jobs ----------------------------------------------------------------------------------------

SimMachine::Gpu* SimMachine::job_gpu(std::uint64_t connection) {
  for (auto& gpu : gpus_)
    for (const Job& job : gpu->jobs)
      if (job.connection == connection) return gpu.get();
  return nullptr;
}

// Whether a job may begin there; then the code is success.
Reply SimMachine::check_start(const Request& request, const Peer& peer) {
  if (request.gpu == kEveryGpu) return answer(Return::invalid_argument, "which GPU?");
  if (job_gpu(peer.connection) != nullptr)
    return answer(Return::invalid_argument, "this connection has a job already");
  const Gpu& gpu = *gpus_[request.gpu];
  if (gpu.lost) return answer(Return::gpu_is_lost, "the GPU is lost");
  if (gpu.jobs.size() >= kProcessesMax)
    return answer(Return::insufficient_size, "the GPU has as many jobs as it can list");
  return {};
}

Reply SimMachine::start_job(const Request& request, const Peer& peer) {
  constexpr double kLongest = 1e9;  // seconds
  if (!(request.number >= 0 && request.number <= kLongest))
    return answer(Return::invalid_argument, "work: allowed is 0 to 1e9 s");
  if (const Reply refused = check_start(request, peer); refused.code != 0) return refused;
  Gpu& gpu = *gpus_[request.gpu];
  auto workload = workload_of(request, gpu.sim.chip());
  if (!workload.ok()) return answer(code_of(workload.error()), workload.error().message);
  const auto instance = instance_of(request, gpu.sim);
  if (!instance.ok()) return answer(code_of(instance.error()), instance.error().message);
  const SimGpu::TenantId tenant =
      gpu.sim.add(*std::move(workload), from_seconds(request.number), *instance);
  gpu.jobs.push_back({peer.connection, peer.pid, program_of(peer.pid), tenant});
  gpu.sample_processes();
  return {};
}

Reply SimMachine::start_engine(const Request& request, const Peer& peer) {
  if (const Reply refused = check_start(request, peer); refused.code != 0) return refused;
  Gpu& gpu = *gpus_[request.gpu];
  const auto instance = instance_of(request, gpu.sim);
  if (!instance.ok()) return answer(code_of(instance.error()), instance.error().message);
  const EngineOrder& wanted = request.engine;
  const auto bounded = [](std::uint32_t number) {
    return static_cast<int>(std::min<std::uint32_t>(number, 1u << 20));
  };
  const ServingOrder order{.engine = get_text(wanted.name),
                           .most_running = bounded(wanted.most_running),
                           .step_tokens = bounded(wanted.step_tokens),
                           .arrivals = {.rate = wanted.rate,
                                        .until_s = kEngineSeconds,
                                        .burst_times = wanted.burst_times,
                                        .burst_at_s = wanted.burst_at_s,
                                        .burst_s = wanted.burst_s,
                                        .seed = wanted.seed},
                           .trace = get_text(request.path)};
  auto job = ServingJob::create(order, gpu.sim.chip());
  if (!job.ok()) return answer(code_of(job.error()), job.error().message);
  const SimGpu::TenantId tenant = (*job)->start(gpu.sim, *instance);
  gpu.jobs.push_back({peer.connection, peer.pid, program_of(peer.pid), tenant, *std::move(job)});
  gpu.sample_processes();
  return {};
}

Reply SimMachine::engine_status(const Peer& peer) {
  Gpu* gpu = job_gpu(peer.connection);
  if (gpu == nullptr) return answer(Return::not_found, "this connection has no job");
  const Job& job = *std::find_if(gpu->jobs.begin(), gpu->jobs.end(),
                                 [&](const Job& one) { return one.connection == peer.connection; });
  if (job.engine == nullptr) return answer(Return::invalid_argument, "its job is no engine");
  if (gpu->sim.tenant(job.tenant) == nullptr)
    return answer(Return::gpu_is_lost, "the GPU was lost or partitioned");
  Reply reply;
  reply.engine = engine_now(job.engine->counters());
  return reply;
}

Reply SimMachine::partition(const Request& request) {
  if (request.gpu == kEveryGpu) return answer(Return::invalid_argument, "which GPU?");
  Gpu& gpu = *gpus_[request.gpu];
  if (gpu.lost) return answer(Return::gpu_is_lost, "the GPU is lost");
  const auto done = gpu.partition(get_text(request.name));
  return done.ok() ? Reply{} : answer(code_of(done.error()), done.error().message);
}

Reply SimMachine::job_status(const Peer& peer) {
  Gpu* gpu = job_gpu(peer.connection);
  if (gpu == nullptr) return answer(Return::not_found, "this connection has no job");
  const auto& job = *std::find_if(gpu->jobs.begin(), gpu->jobs.end(), [&](const Job& one) {
    return one.connection == peer.connection;
  });
  const SimJob* tenant = gpu->sim.tenant(job.tenant);
  if (tenant == nullptr) return answer(Return::gpu_is_lost, "the GPU was lost or partitioned");
  Reply reply;
  reply.finished = tenant->finished.has_value();
  reply.work_done_s = tenant->done;
  reply.time_s = seconds(tenant->finished.value_or(gpu->sim.now()) - tenant->started);
  reply.joules = tenant->energy.value();
  put_text(reply.message, tenant->workload.name);
  return reply;
}

// --- faults --------------------------------------------------------------------------------------

void SimMachine::publish_faults() {
  std::uint32_t count = 0;
  for (const CallFault& fault : faults_.list) count += fault.id != 0 ? 1 : 0;
  state_.faults.write(faults_);
  state_.call_faults.store(count);
}

Reply SimMachine::add_call_fault(const Request& request) {
  const auto slot = std::find_if(std::begin(faults_.list), std::end(faults_.list),
                                 [](const CallFault& fault) { return fault.id == 0; });
  if (slot == std::end(faults_.list))
    return answer(Return::insufficient_size,
                  fmt::format("there are {} faults already: clear them", kFaultsMax));
  const std::string call = get_text(request.name);
  if (call.empty()) return answer(Return::invalid_argument, "which call?");
  *slot = {};
  put_text(slot->call, call);
  slot->gpu = request.gpu;
  slot->id = ++last_fault_;
  slot->code = request.a;
  slot->hangs = request.b != 0;
  slot->counted = request.c > 0 || request.d > 0;
  if (slot->counted) counted_.push_back({slot->id, request.c, request.d, request.d == 0});
  publish_faults();
  return {};
}

Reply SimMachine::count_call(const Request& request) {
  Reply reply;
  for (Counted& counted : counted_) {
    if (counted.id != request.a) continue;
    if (counted.skip > 0) {
      --counted.skip;
    } else if (counted.endless || counted.times > 0) {
      if (!counted.endless) --counted.times;
      reply.value = 1;
    }
  }
  return reply;
}

Reply SimMachine::add_gpu_fault(const Request& request) {
  if (request.a < static_cast<std::uint32_t>(GpuFault::lost) ||
      request.a > static_cast<std::uint32_t>(GpuFault::mig))
    return answer(Return::invalid_argument, "no such fault");
  const auto fault = static_cast<GpuFault>(request.a);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (request.gpu != kEveryGpu && request.gpu != i) continue;
    gpus_[i]->set(fault);
    gpus_[i]->publish(state_.gpu[i]);
  }
  return {};
}

Reply SimMachine::report_xid(const Request& request) {
  if (request.a == 0) return answer(Return::invalid_argument, "an Xid has a number from 1 on");
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (request.gpu != kEveryGpu && request.gpu != i) continue;
    XidsNow& xids = gpus_[i]->xids;
    xids.newest[xids.count++ % kXidsKept] = request.a;
    gpus_[i]->publish(state_.gpu[i]);
  }
  return {};
}

Reply SimMachine::clear_faults(const Request& request) {
  for (std::size_t i = 0; i < gpus_.size(); ++i)
    if (request.gpu == kEveryGpu || request.gpu == i) {
      gpus_[i]->clear();
      gpus_[i]->publish(state_.gpu[i]);
    }
  for (CallFault& fault : faults_.list)
    if (request.gpu == kEveryGpu || fault.gpu == request.gpu) {
      std::erase_if(counted_, [&](const Counted& counted) { return counted.id == fault.id; });
      fault = {};
    }
  if (request.gpu == kEveryGpu) kill_ = {};
  publish_faults();
  return {};
}

}  // namespace derate::fakenvml
