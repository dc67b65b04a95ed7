// derate sim fault: what goes wrong with served GPUs, for every client at once.
#include <fmt/format.h>

#include "base/text.h"
#include "fakenvml/return_codes.h"
#include "sim_served.h"

namespace derate::cli {
namespace {

using fakenvml::GpuFault, fakenvml::Op, fakenvml::Request;

Result<std::uint32_t> parse_code(const std::string& text) {
  std::string known;
  for (const fakenvml::ReturnName& one : fakenvml::return_names()) {
    if (to_lower(text) == one.name) return one.code;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  }
  if (const auto number = parse_integer(text); number && *number > 0 && *number <= 999)
    return static_cast<std::uint32_t>(*number);
  return Error{Errc::invalid_argument,
               fmt::format("--fails '{}': allowed is 1 to 999 or {}", text, known)};
}

Request request_of(Op op, std::uint32_t gpu) {
  Request request;
  request.op = op;
  request.gpu = gpu;
  return request;
}

Result<Request> call_fault(const SimFaultOptions& options, std::uint32_t gpu) {
  if (options.hangs == !options.fails.empty())
    return Error{Errc::invalid_argument, "--call needs either --fails CODE or --hangs"};
  Request request = request_of(Op::call_fault, gpu);
  if (options.call.size() >= sizeof request.name)
    return Error{Errc::invalid_argument, fmt::format("--call '{}': too long", options.call)};
  fakenvml::put_text(request.name, options.call);
  if (!options.hangs) request.a = TRY(parse_code(options.fails));
  request.b = options.hangs ? 1 : 0;
  request.c = static_cast<std::uint32_t>(options.skip);
  request.d = static_cast<std::uint32_t>(options.times);
  return request;
}

std::vector<GpuFault> gpu_faults(const SimFaultOptions& options) {
  std::vector<GpuFault> out;
  if (options.lost) out.push_back(GpuFault::lost);
  if (options.writes_ignored) out.push_back(GpuFault::writes_ignored);
  if (options.absurd) out.push_back(GpuFault::absurd);
  if (options.mig) out.push_back(GpuFault::mig);
  if (options.counters == "frozen") out.push_back(GpuFault::counters_frozen);
  if (options.counters == "backwards") out.push_back(GpuFault::counters_backwards);
  if (options.counters == "wrapped") out.push_back(GpuFault::counters_wrapped);
  if (options.counters == "jump") out.push_back(GpuFault::counters_jump);
  return out;
}

// In the order in which they take effect: what is cleared first is not what is set with it.
Result<std::vector<Request>> requests_of(const SimFaultOptions& options, std::uint32_t gpu) {
  std::vector<Request> out;
  if (options.clear) out.push_back(request_of(Op::clear_faults, gpu));
  if (!options.call.empty()) out.push_back(TRY(call_fault(options, gpu)));
  for (const GpuFault fault : gpu_faults(options)) {
    out.push_back(request_of(Op::gpu_fault, gpu));
    out.back().a = static_cast<std::uint32_t>(fault);
  }
  if (options.xid != 0) {
    out.push_back(request_of(Op::xid, gpu));
    out.back().a = static_cast<std::uint32_t>(options.xid);
  }
  return out;
}

Request kill_request(const SimFaultOptions& options) {
  Request request = request_of(Op::kill_writer, fakenvml::kEveryGpu);
  request.a = options.kill_writer == "after" ? 1 : 0;
  request.b = static_cast<std::uint32_t>(options.at);
  return request;
}

}  // namespace

Result<int> run_verb(const SimFaultOptions& options) {
  const auto client = TRY(connect_sim(options));
  std::vector<std::uint32_t> gpus{fakenvml::kEveryGpu};
  if (!options.gpus.empty()) {
    const auto chosen = TRY(served_gpus(*client, options.gpus));
    gpus.assign(chosen.begin(), chosen.end());
  }
  std::vector<Request> all;
  for (const std::uint32_t gpu : gpus)
    for (const Request& request : TRY(requests_of(options, gpu))) all.push_back(request);
  if (!options.kill_writer.empty()) all.push_back(kill_request(options));
  if (all.empty())
    return Error{Errc::invalid_argument, "which fault? --help lists them; --clear takes all away"};
  for (const Request& request : all) TRY(ask_sim(*client, request));
  return 0;
}

}  // namespace derate::cli
