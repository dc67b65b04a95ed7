#include "demo_live.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <filesystem>

#include "api/requests.h"
#include "base/child_process.h"
#include "base/defer.h"
#include "base/json.h"
#include "base/own_files.h"
#include "base/text.h"
#include "fakenvml/sim_client.h"
#include "service/http/http_server.h"
#include "service/transport/signals.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr std::array kPolicies{"max-freq", "slo"};
constexpr Duration kStarts = std::chrono::seconds(10), kEnds = std::chrono::seconds(20);
constexpr Duration kLook = std::chrono::milliseconds(200);

struct Programs {
  std::string derate, nvml, folder;

  ChildOptions child(const std::string& name) const {
    ChildOptions out{.output = folder + "/" + name + ".out",
                     .errors = folder + "/" + name + ".err"};
    out.environment = {"DERATE_SIM=" + folder + "/sim", "DERATE_NVML_LIBRARY=" + nvml,
                       "DERATE_RUN_DIR=" + folder + "/run",
                       "DERATE_STATE_DIR=" + folder + "/state"};
    out.own_group = true;
    out.dies_with_us = true;
    return out;
  }
  Result<Child> start(const std::string& name, const std::vector<std::string>& arguments) const {
    std::vector<std::string> command{derate};
    command.insert(command.end(), arguments.begin(), arguments.end());
    auto started = TRY(Child::start(command, child(name)));
    if (!started.child) return Error{Errc::io, started.message};
    return std::move(*started.child);
  }
};

Result<Programs> programs() {
  std::string folder = (std::filesystem::temp_directory_path() / "derate-demo-XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr)
    return Error{Errc::io, fmt::format("'{}' cannot be made", folder)};
  Programs out{.derate = {}, .nvml = {}, .folder = folder};
  out.derate = TRY(own_program("derate"));
  out.nvml = TRY(own_nvml_library());
  for (const char* each : {"/sim", "/run", "/state"}) TRY(make_folders(folder + each));
  return out;
}

// A port on which nobody listens now.
Result<int> free_port() {
  const UniqueFd socket = TRY(listen_loopback("127.0.0.1:0"));
  sockaddr_in found{};
  socklen_t size = sizeof found;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&found), &size) != 0)
    return Error{Errc::io, "a port cannot be found"};
  return int{ntohs(found.sin_port)};
}

Result<void> await_server(const std::string& folder, Clock& clock) {
  for (const Instant end = clock.now() + kStarts; clock.now() < end;) {
    if (fakenvml::SimClient::connect(folder + "/sim").ok()) return {};
    (void)clock.sleep_until(clock.now() + kLook);
  }
  return Error{Errc::io, "the simulated GPUs are not served"};
}

std::vector<std::string> run_arguments(const DemoServeOptions& options, const DemoLoad& load,
                                       const Programs& of, std::size_t gpu, int port) {
  const std::string number = std::to_string(gpu);
  const std::string address = fmt::format("127.0.0.1:{}", port);
  return {"run",
          "-i",
          number,
          "-p",
          kPolicies[gpu],
          "--json",
          "-o",
          fmt::format("{}/{}.json", of.folder, kPolicies[gpu]),
          "--metrics",
          fmt::format("http://{}/metrics", address),
          "--promise",
          fmt::format("itl p99 <= {:.6g} ms", 1000 * load.edge_s),
          "--most-running",
          std::to_string(options.most_running),
          "--",
          of.derate,
          "sim",
          "job",
          "llm",
          "-i",
          number,
          "--engine",
          load.engine,
          "--metrics",
          address,
          "--requests",
          fmt::format("{:.6g}", load.rate),
          "--running",
          std::to_string(options.most_running),
          "--step-tokens",
          std::to_string(options.step_tokens > 0 ? options.step_tokens : 2048),
          "--seed",
          std::to_string(options.seed),
          "--for",
          fmt::format("{}s", options.live_s)};
}

// Until all have ended, or a signal comes.
Result<void> await_runs(std::vector<Child>& runs, double time_s, Clock& clock) {
  ProgressLine progress("s, live");
  const Instant began = clock.now();
  const Instant end = began + from_seconds(time_s) + kEnds;
  for (std::size_t ended = 0; ended < runs.size();) {
    if (stop_signal() != 0) return Error{Errc::interrupted, "interrupted"};
    if (clock.now() > end) return Error{Errc::io, "a live run does not end"};
    progress.show(static_cast<std::size_t>(std::min(seconds(clock.now() - began), time_s)),
                  static_cast<std::size_t>(time_s), clock.now() - began);
    (void)clock.sleep_until(clock.now() + kLook);
    ended = 0;
    for (Child& run : runs) ended += run.poll().has_value() ? 1 : 0;
  }
  progress.clear();
  return {};
}

Result<LiveRun> live_run(const Programs& of, const char* policy) {
  const Json account = parse_json(TRY(read_file(fmt::format("{}/{}.json", of.folder, policy))));
  const auto gpus = account.find("gpus"), engine = account.find("engine");
  if (gpus == account.end() || gpus->size() != 1 || engine == account.end())
    return Error{Errc::io, fmt::format("the run of {} has no account: see {}", policy, of.folder)};
  const auto joules = number_at(gpus->front(), "energy_joules");
  const auto read = answer_of<ServicesAnswer>(Json{{"services", Json::array({*engine})}});
  if (!joules || !read.ok() || !read->services[0].figures)
    return Error{Errc::io, fmt::format("the run of {} read no metrics: see {}", policy, of.folder)};
  return LiveRun{policy, *joules, *read->services[0].figures};
}

}  // namespace

Result<std::vector<LiveRun>> demo_live(const DemoServeOptions& options, const DemoLoad& load) {
  SystemClock clock;
  watch_signals();
  const Programs of = TRY(programs());
  const Defer tidy([&of] {
    std::error_code ignored;
    std::filesystem::remove_all(of.folder, ignored);
  });
  Child server = TRY(of.start(
      "serve", {"sim", "serve", "--chip", load.chip, "--gpus", "2", "--dir", of.folder + "/sim"}));
  const Defer end_server([&] { server.end(clock, std::chrono::seconds(2)); });
  TRY(await_server(of.folder, clock));
  std::vector<Child> runs;
  const Defer end_runs([&] {
    for (Child& run : runs) run.end(clock, std::chrono::seconds(5));
  });
  for (std::size_t gpu = 0; gpu < kPolicies.size(); ++gpu) {
    const int port = TRY(free_port());
    runs.push_back(TRY(of.start(kPolicies[gpu], run_arguments(options, load, of, gpu, port))));
  }
  TRY(await_runs(runs, options.live_s, clock));
  std::vector<LiveRun> out;
  for (const char* policy : kPolicies) out.push_back(TRY(live_run(of, policy)));
  return out;
}

std::string live_text(const std::vector<LiveRun>& runs, const DemoLoad& load, double time_s) {
  const auto share = [](const std::optional<double>& of_tokens) {
    return of_tokens ? fmt::format("{:.2f} %", 100 * *of_tokens) : "-";
  };
  Table table({"policy", "saved", "energy/token", "late tokens", "by the clock", "tokens/s"});
  for (const LiveRun& run : runs) {
    const ServiceFigures& of = run.figures;
    table.add({run.policy, fmt::format("{:.1f} %", 100 * (1 - run.joules / runs.front().joules)),
               of.joules_per_token ? fmt::format("{:.3f} J", *of.joules_per_token) : "-",
               share(of.late_ratio), share(of.late_by_clock_ratio),
               of.tokens_per_second ? fmt::format("{:.1f}", *of.tokens_per_second) : "-"});
  }
  const std::string title = fmt::format(
      "Live: {:.0f} s of real processes, {:.2f} requests a second, promise itl p99 <= "
      "{:.0f} ms",
      time_s, load.rate, 1000 * load.edge_s);
  return fmt::format(
      "\n{}\n{}The same requests on two simulated GPUs, `derate run --metrics --promise` over "
      "each; "
      "the\nquantile of so few tokens varies.\n",
      toned(title, Paint::strong), table.text());
}

}  // namespace derate::cli
