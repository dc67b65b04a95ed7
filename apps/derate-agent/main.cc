// derate-agent: derated's HTTP on a loopback port, for Prometheus and for callers with a token; or
// its metrics, pushed to a receiver of OpenTelemetry. It has no rights and no GPU.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent.h"
#include "base/child_process.h"
#include "base/exit_code.h"
#include "base/http_url.h"
#include "base/journald.h"
#include "base/log.h"
#include "base/outermost.h"
#include "base/text.h"
#include "base/write_now.h"
#include "config/paths.h"
#include "duties.h"
#include "health_check.h"
#include "leading_page.h"
#include "otlp_push.h"
#include "scrape_duty.h"
#include "service/http/http_server.h"
#include "service/loop/event_loop.h"
#include "service/loop/run_until_stopped.h"
#include "service/transport/signals.h"
#include "terminal/output.h"
#include "terminal/program_options.h"

namespace derate::agent {
namespace {

struct CommandLine {
  std::string listen = "127.0.0.1:9410", socket;
  std::vector<std::string> hosts;
  bool page = false, open = false, metrics_only = false;
  std::optional<std::string> check;  // a path
  std::optional<std::string> otlp;   // empty text: where the environment says
  std::optional<double> otlp_interval_s;
  std::string read, model;  // a page of metrics
};

std::vector<std::string> sockets_of(const CommandLine& line) {
  return line.socket.empty() ? api_sockets() : std::vector<std::string>{line.socket};
}

Result<AgentOptions> agent_options(const CommandLine& line) {
  AgentOptions out{.sockets = sockets_of(line)};
  out.rules.page = line.page;
  out.rules.metrics_only = line.metrics_only;
  if (line.page) out.session = TRY(PageSession::create());
  // Of 127.0.0.2, say, which is no usual name of this machine.
  if (auto host = host_of(line.listen)) out.rules.hosts.push_back(*std::move(host));
  for (const std::string& name : line.hosts) {
    auto host = host_of(name);
    if (!host || *host != to_lower(name))
      return Error{Errc::invalid_argument,
                   fmt::format("--allow-host '{}': allowed is a name without a port", name)};
    out.rules.hosts.push_back(*std::move(host));
  }
  return out;
}

// With the port that it was given where it asked for any.
std::string address_of(const UniqueFd& listening) {
  sockaddr_storage found{};
  socklen_t size = sizeof found;
  (void)::getsockname(listening.get(), reinterpret_cast<sockaddr*>(&found), &size);
  char host[INET6_ADDRSTRLEN] = "";
  if (found.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(found);
    (void)::inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof host);
    return fmt::format("[{}]:{}", host, ntohs(v6.sin6_port));
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(found);
  (void)::inet_ntop(AF_INET, &v4.sin_addr, host, sizeof host);
  return fmt::format("{}:{}", host, ntohs(v4.sin_port));
}

// Every user can read the arguments of xdg-open and of the browser: they have the file's name
// alone. A failure is ignored, as the address is on the terminal.
void open_in_browser(const std::string& page) {
  ChildOptions how;
  how.output = how.errors = "/dev/null";
  how.own_group = true;
  (void)Child::start({"xdg-open", "file://" + page}, how).ok();
}

// The file is removed when the browser has loaded the page, or when this process ends.
using Leading = std::shared_ptr<LeadingPage>;
Leading leading_page(const std::string& address, const Log& log) {
  auto made = LeadingPage::create(own_runtime_folder(), address);
  if (made.ok()) return std::make_shared<LeadingPage>(*std::move(made));
  log.warning("no browser is opened: " + made.error().message);
  return nullptr;
}

Result<void> serve(const CommandLine& line, const Log& log) {
  // A call that hangs outlives all else here.
  static SystemClock clock;
  AgentOptions options = TRY(agent_options(line));
  block_signals(kStopSignals);
  block_signals(kIgnoredSignals);
  const auto loop = TRY(EventLoop::create());
  UniqueFd listening =
      TRY((line.metrics_only ? listen_tcp(line.listen) : listen_loopback(line.listen))
              .with("--listen"));
  const std::string where = address_of(listening);
  const std::string from = options.sockets.front();
  const std::string address =
      options.session ? fmt::format("http://{}/ui#{}", where, options.session->code()) : "";
  const Leading leading = line.page && line.open ? leading_page(address, log) : nullptr;
  const std::string page = leading ? leading->path() : "";
  if (leading) options.session_begun = [leading] { leading->remove(); };
  const auto agent = TRY(Agent::create(std::move(listening), clock, std::move(options)));
  if (line.page) {
    write_text(stdout, address + "\n");
    std::fflush(stdout);
    if (leading) open_in_browser(page);
    return run_until_stopped(*loop, clock);
  }
  log.info(fmt::format("listening on {}, asking derated at {}", where, from));
  start_scraping({.sockets = sockets_of(line), .log = log});
  return run_until_stopped(*loop, clock);
}

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// The loop has the signals and the watchdog; who pushes may hang in a call, and ends with the
// process.
Result<void> push(const CommandLine& line, const Log& log) {
  SystemClock clock;
  OtlpOptions to = TRY(otlp_options(*line.otlp, line.otlp_interval_s, environment));
  OtlpPush what{
      .sockets = sockets_of(line), .to = std::move(to), .version = DERATE_VERSION, .log = log};
  block_signals(kStopSignals);
  block_signals(kIgnoredSignals);
  const auto loop = TRY(EventLoop::create());
  log.info(fmt::format("pushing metrics to http://{}{} every {:g} s", what.to.target.authority(),
                       what.to.target.path, seconds(what.to.interval)));
  start_thread([what = std::move(what)] {
    SystemClock its_own;  // it outlives this function, and whatever is destroyed when main() ends
    push_forever(what, its_own);
  });
  return run_until_stopped(*loop, clock);
}

// As a probe: its exit code is the answer.
Result<int> check(const CommandLine& line) {
  const HealthCheck found = TRY(check_health(sockets_of(line), *line.check));
  write_text(stdout, found.line + "\n");
  return found.is_good ? 0 : 1;
}

std::vector<ProgramOption> port_options(CommandLine& line) {
  return {
      {"-l,--listen", "ADDRESS:PORT",
       "A loopback address and port (" + line.listen + "); [::1]:9410 for IPv6", &line.listen},
      {"--allow-host", "NAME",
       "A host name under which clients reach a proxy in front of this program; may be repeated",
       &line.hosts},
      {"--socket", "FILE",
       "derated's socket; default: $DERATE_API_SOCKET, else api.sock of the run folder",
       &line.socket},
      {"--page", "",
       "Serve the page for the user who starts it, at an address that is good once; see "
       "`derate ui`",
       &line.page},
      {"--open", "", "Open that address in the browser, too", &line.open},
      {.names = "--metrics-only",
       .type = "",
       .what = "Serve /metrics, /livez and /readyz and nothing else, to everyone; --listen may be "
               "any address then, such as 0.0.0.0:9410",
       .target = &line.metrics_only,
       .excludes = {"--allow-host", "--page"}},
      {.names = "--check",
       .type = "PATH",
       .what = "Serve nothing; query /livez or /readyz once, print the answer's first line, and "
               "exit with 0 if it is good, else 1",
       .target = &line.check,
       .excludes = {"--listen", "--allow-host", "--page", "--metrics-only"}},
  };
}

std::vector<ProgramOption> other_options(CommandLine& line) {
  return {
      {.names = "--otlp",
       .type = "URL",
       .what = "Serve nothing; push metrics to http://HOST[:PORT][/PATH] by OTLP/HTTP; "
               "without URL where $OTEL_EXPORTER_OTLP_ENDPOINT says, or "
               "http://localhost:4318",
       .target = &line.otlp,
       .excludes = {"--listen", "--allow-host", "--page", "--metrics-only", "--check"}},
      {.names = "--read",
       .type = "URL",
       .what = "Serve nothing; read this page of an engine's metrics four times a second and print "
               "a line of JSON each, as `derate run --metrics` has it done",
       .target = &line.read,
       .excludes = {"--listen", "--allow-host", "--page", "--metrics-only", "--check", "--otlp"}},
      {.names = "--model",
       .type = "NAME",
       .what = "The model whose metrics count; default: the page's only one",
       .target = &line.model,
       .needs = "--read"},
      {.names = "--otlp-interval",
       .type = "SECONDS",
       .what = "Seconds from push to push; default: $OTEL_METRIC_EXPORT_INTERVAL, else 60",
       .target = &line.otlp_interval_s,
       .needs = "--otlp"},
  };
}

ProgramUsage usage_of(CommandLine& line) {
  std::vector<ProgramOption> options = port_options(line);
  for (ProgramOption& option : other_options(line)) options.push_back(std::move(option));
  return {
      .name = "derate-agent",
      .version = DERATE_VERSION,
      .summary =
          "Serves derated's metrics, health and operations over HTTP on a loopback address, or its "
          "metrics alone on any; or pushes them to a receiver of OpenTelemetry. See "
          "derate-agent(8).",
      .footer =
          "Examples:\n"
          "  derate-agent                                   # as the service runs it\n"
          "  derate-agent --listen '[::1]:9410'\n"
          "  derate-agent --allow-host gpu7.example.org     # behind a proxy of that name\n"
          "  derate-agent --otlp http://localhost:4318      # to a collector of OpenTelemetry\n"
          "  derate-agent --listen 0.0.0.0:9410 --metrics-only   # in a pod\n"
          "  derate-agent --check /readyz                   # a probe of Kubernetes\n"
          "  derate-agent --read http://127.0.0.1:8000/metrics   # an engine's page, as read\n"
          "  curl http://127.0.0.1:9410/metrics\n"
          "  curl -H @FILE http://127.0.0.1:9410/v1/gpu-list   # Authorization: Bearer TOKEN\n\n"
          "Without a token there are /metrics, /livez and /readyz. SIGTERM and SIGINT end it.\n",
      .options = std::move(options)};
}

// On the thread of main(), until a signal ends the process or nobody reads its lines.
Result<int> read_page(const CommandLine& line) {
  SystemClock clock;
  ServiceView page{.name = "run", .metrics = line.read, .every_seconds = 0.25};
  page.wanted_model = line.model;
  const ScrapeTarget target = TRY(scrape_target(page).with("--read"));
  while (true) {
    if (!write_while(STDOUT_FILENO, read_once(target, clock) + "\n", clock, [] { return true; }))
      return exit_code::kOk;
    const Instant now = clock.now();
    (void)clock.sleep_until(now + target.every - now.time_since_epoch() % target.every);
  }
}

Result<int> run(const CommandLine& line, const Log& log) {
  if (line.check) return check(line);
  if (!line.read.empty()) return read_page(line);
  TRY(line.otlp ? push(line, log) : serve(line, log));
  return exit_code::kOk;
}

int main_of(int argc, char** argv) {
  CommandLine line;
  if (const auto end = read_options(usage_of(line), argc, argv)) return *end;
  const Log log = program_log("derate-agent", journald_writer("derate-agent", journald_socket()));
  const auto done = run(line, log);
  if (done.ok()) return *done;
  log.error(done.error().message);
  return exit_code_of(done.error().code);
}

}  // namespace
}  // namespace derate::agent

int main(int argc, char** argv) {
  derate::open_standard_files();
  derate::ignore_signals_of_writes();
  return derate::run_outermost("derate-agent", [&] { return derate::agent::main_of(argc, argv); });
}
