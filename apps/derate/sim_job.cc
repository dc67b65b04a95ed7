// derate sim job: work for a served GPU, for as long as this process lives.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "beats.h"
#include "service/transport/signals.h"
#include "sim_engine.h"
#include "sim_launches.h"
#include "sim_served.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

using fakenvml::Op, fakenvml::Reply, fakenvml::Request;

constexpr Duration kLookEvery = std::chrono::milliseconds(50);
// Launches are counted as they are made: who reads them at any moment finds them all.
constexpr Duration kLaunchEvery = std::chrono::milliseconds(2);

Result<Request> start_request(const SimJobOptions& options, int gpu, double work_s) {
  Request request;
  request.op = Op::start_job;
  request.gpu = static_cast<std::uint32_t>(gpu);
  request.number = work_s;
  request.a = static_cast<std::uint32_t>(options.instance);
  std::error_code ignored;
  const std::string tables =
      options.tables.empty() ? "" : std::filesystem::absolute(options.tables, ignored).string();
  if (options.workload.size() >= sizeof request.name || tables.size() >= sizeof request.path)
    return Error{Errc::invalid_argument, "the workload's name or folder is too long"};
  fakenvml::put_text(request.name, options.workload);
  fakenvml::put_text(request.path, tables);
  return request;
}

Result<std::optional<SimLaunches>> launches_of(const SimJobOptions& options,
                                               const fakenvml::SimClient& client, int gpu) {
  if (options.launches.empty()) return std::optional<SimLaunches>();
  const auto& identity = client.state().identity[gpu];
  return std::optional(
      TRY(SimLaunches::create(options.launches, fakenvml::get_text(identity.uuid))));
}

// Until the work is done or a signal comes; `beat`: saying each second how far it is.
Result<Reply> wait_for_end(fakenvml::SimClient& client, const SimJobOptions& options,
                           std::optional<SimLaunches>& launches) {
  const double work_s = options.work_s, for_s = options.engine.for_s;
  const bool beat = options.beat;
  constexpr Duration kBeatEvery = std::chrono::seconds(1);
  Request request;
  request.op = Op::job_status;
  SystemClock clock;
  const Instant began = clock.now();
  Instant next_beat = began;
  EnvironmentSender environment;
  ProgressLine progress("s of work");
  while (true) {
    const Reply reply = TRY(ask_sim(client, request));
    const bool over = for_s > 0 && clock.now() - began >= from_seconds(for_s);
    if (reply.finished != 0 || over || stop_signal() != 0) {
      progress.clear();
      return reply;
    }
    if (work_s > 0)
      progress.show(static_cast<std::size_t>(reply.work_done_s), static_cast<std::size_t>(work_s),
                    clock.now() - began);
    if (launches) TRY(launches->show(from_seconds(reply.work_done_s), clock));
    if (beat && clock.now() >= next_beat) {
      environment.send_if_due(clock);
      (void)send_beat_message({reply.work_done_s}).ok();  // nobody needs to hear it
      next_beat += kBeatEvery;
    }
    clock.sleep_until(clock.now() + (launches ? kLaunchEvery : kLookEvery));
  }
}

void report(const Reply& reply, int gpu, bool json) {
  const double watts = reply.time_s > 0 ? reply.joules / reply.time_s : 0;
  const std::string workload = fakenvml::get_text(reply.message);
  if (json)
    print_json("sim job", {{"workload", workload},
                           {"gpu", gpu},
                           {"finished", reply.finished != 0},
                           {"work_seconds", reply.work_done_s},
                           {"time_seconds", reply.time_s},
                           {"joules", reply.joules},
                           {"mean_watts", watts}});
  else
    print("{} on GPU {}: {:.1f} s of work in {:.1f} s, {:.0f} J, {:.0f} W\n", workload, gpu,
          reply.work_done_s, reply.time_s, reply.joules, watts);
}

}  // namespace

Result<int> run_verb(const SimJobOptions& options) {
  const double work_s = options.work_s;
  const auto client = TRY(connect_sim(options));
  const auto gpus = TRY(served_gpus(*client, options.gpu));
  if (gpus.size() != 1)
    return Error{Errc::invalid_argument,
                 fmt::format("'{}' names {} GPUs: a job has one", options.gpu, gpus.size())};
  auto launches = TRY(launches_of(options, *client, gpus.front()));
  watch_signals();
  const bool serves = options.workload == kEngineWorkload;
  const Request request = TRY(serves ? engine_request(options, gpus.front())
                                     : start_request(options, gpus.front(), work_s));
  TRY(ask_sim(*client, request));
  SystemClock clock;
  std::unique_ptr<HttpServer> page;
  if (serves) {
    page = TRY(serve_engine(options.engine.metrics, *client, kEngineWorkload, clock));
    if (!options.json) print("serving http://{}/metrics\n", options.engine.metrics);
    std::fflush(stdout);
  }
  const Reply reply = TRY(wait_for_end(*client, options, launches));
  report(reply, gpus.front(), options.json);
  // Work without an end ends by a signal; other work is cut short by it.
  const bool complete = reply.finished != 0 || work_s == 0;
  return complete ? 0 : 128 + stop_signal();
}

}  // namespace derate::cli
