// What the HTTP server does in a second, over unix sockets, and what its thread's time a request
// is: callers that each wait for their answer before they ask again. All callers together have
// their share of time (http_server.cc), which bounds the requests a second.
#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>

#include <atomic>
#include <string>
#include <vector>

#include "base/check.h"
#include "service/http/http_call.h"
#include "service/http/test_http.h"

namespace {

using namespace derate;
using namespace std::chrono_literals;

struct Bench {
  std::string path;
  SystemClock clock;
  std::string body;
  std::atomic<std::int64_t> cpu_ns = 0;  // of the server's thread, at the last request
  std::unique_ptr<HttpServer> server;

  void serve() {
    HttpServerOptions options;
    options.kind_of = [](const HttpRequest& head) {
      return head.path == "/livez" ? HttpKind::health : HttpKind::control;
    };
    options.handle = [this](const HttpCall&) {
      cpu_ns = thread_cpu_time().count();
      return HttpResponse{.body = body};
    };
    options.requests_a_second_of_a_user = 1e9;
    server = *HttpServer::create(*listen_unix(path, 0600), clock, std::move(options));
  }

  // The next answer is as long as each.
  void ask_and_wait(std::vector<RawCaller>& callers, const std::string& target, std::size_t length,
                    Instant end) {
    const auto take = [&](RawCaller& each) {
      std::string got = each.read_until("\r\n\r\n");
      CHECK(status_in(got) == 200);
      each.skip(length);
      each.get(target);
    };
    std::vector<pollfd> wanted;
    for (const RawCaller& each : callers) {
      each.get(target);
      wanted.push_back({each.fd(), POLLIN, 0});
    }
    while (clock.now() < end) {
      CHECK(::poll(wanted.data(), wanted.size(), 1000) >= 0);
      for (std::size_t i = 0; i < callers.size(); ++i)
        if (wanted[i].revents != 0) take(callers[i]);
    }
  }

  void measure(const char* what, std::size_t connections, const std::string& target,
               std::size_t length) {
    body = std::string(length, 'x');
    std::vector<RawCaller> callers;
    for (std::size_t i = 0; i < connections; ++i) callers.emplace_back(path);
    (void)http_call(path, {.target = target}, 10s);
    const auto requests = server->figures().requests;
    const std::int64_t cpu = cpu_ns;
    const Instant begin = clock.now();
    ask_and_wait(callers, target, length, begin + 3s);
    const auto done = static_cast<double>(server->figures().requests - requests);
    fmt::print("{:<34} {:>8.0f} requests/s {:>8.1f} us a request\n", what,
               done / seconds(clock.now() - begin), static_cast<double>(cpu_ns - cpu) / 1e3 / done);
  }
  void measure_calls(const char* what, const std::string& target) {
    body = "{}";
    const std::int64_t cpu = cpu_ns;
    const Instant begin = clock.now();
    double done = 0;
    for (; clock.now() < begin + 3s; ++done) CHECK(http_call(path, {.target = target}, 10s).ok());
    fmt::print("{:<34} {:>8.0f} requests/s {:>8.1f} us a request\n", what,
               done / seconds(clock.now() - begin), static_cast<double>(cpu_ns - cpu) / 1e3 / done);
  }
};

}  // namespace

int main() {
  char folder[] = "/tmp/derate-http-XXXXXX";
  CHECK(::mkdtemp(folder) != nullptr);
  Bench bench;
  bench.path = std::string(folder) + "/api.sock";
  bench.serve();
  bench.measure("1 connection, 200 bytes", 1, "/v1/gpus", 200);
  bench.measure("50 connections, 200 bytes", 50, "/v1/gpus", 200);
  bench.measure("50 of kind health, 200 bytes", 50, "/livez", 200);
  bench.measure("1 connection, 500 kB", 1, "/metrics", 500'000);
  bench.measure_calls("a connection each, 2 bytes", "/v1/gpus");
  {  // as long as others only hold theirs
    std::vector<RawCaller> idle;
    for (int i = 0; i < 100; ++i) idle.emplace_back(bench.path);
    bench.measure("1 connection beside 100 idle ones", 1, "/v1/gpus", 200);
  }
  bench.server.reset();
  ::rmdir(folder);
}
