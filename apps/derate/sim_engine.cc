#include "sim_engine.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>

#include "base/text.h"
#include "device/sim/serving/serving_engine.h"

namespace derate::cli {
namespace {

using fakenvml::EngineNow, fakenvml::Op, fakenvml::Request;

// "60,20,3": at 60 s, for 20 s, three times the requests.
struct Burst {
  double at_s = 0, length_s = 0, times = 1;
};
Result<Burst> burst_of(const std::string& text) {
  constexpr double kLongest = 4 * 3600, kMostTimes = 100;
  if (text.empty()) return Burst{};
  const auto parts = split(text, ',');
  const Error wrong{
      Errc::invalid_argument,
      fmt::format("--burst '{}': allowed is AT,LENGTH,TIMES, such as 60s,20s,3", text)};
  if (parts.size() != 3) return wrong;
  const auto at_s = parse_seconds(parts[0]), length_s = parse_seconds(parts[1]);
  const auto times = parse_double(parts[2]);
  if (!at_s || !length_s || !times || *at_s < 0 || *at_s > kLongest || *length_s < 0 ||
      *length_s > kLongest || *times < 1 || *times > kMostTimes)
    return wrong;
  return Burst{*at_s, *length_s, *times};
}

class Page {
 public:
  explicit Page(std::string model)
      : labels_(fmt::format("engine=\"0\",model_name=\"{}\"", model)) {}

  void number(const char* name, const char* type, double value) {
    text_ += fmt::format("# TYPE vllm:{} {}\nvllm:{}{{{}}} {}\n", name, type, name, labels_, value);
  }
  void histogram(const char* name, std::span<const double> edges, std::span<const double> counts,
                 double sum_s) {
    text_ += fmt::format("# TYPE vllm:{} histogram\n", name);
    double sum = 0;
    for (std::size_t i = 0; i <= edges.size(); ++i) {
      const std::string edge = i < edges.size() ? fmt::format("{}", edges[i]) : "+Inf";
      text_ +=
          fmt::format("vllm:{}_bucket{{{},le=\"{}\"}} {}\n", name, labels_, edge, sum += counts[i]);
    }
    text_ += fmt::format("vllm:{}_count{{{}}} {}\nvllm:{}_sum{{{}}} {}\n", name, labels_, sum, name,
                         labels_, sum_s);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string labels_, text_;
};

HttpResponse page_of(fakenvml::SimClient& client, const std::string& model) {
  Request request;
  request.op = Op::engine_status;
  const auto reply = client.ask(request);
  if (!reply || reply->code != 0) return error_response(503, "the simulated GPU is gone");
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .body = engine_page(reply->engine, model)};
}

}  // namespace

Result<Request> engine_request(const SimJobOptions& options, int gpu) {
  const SimEngineOptions& engine = options.engine;
  const Burst burst = TRY(burst_of(engine.burst));
  Request request;
  request.op = Op::start_engine;
  request.gpu = static_cast<std::uint32_t>(gpu);
  request.a = static_cast<std::uint32_t>(options.instance);
  std::error_code ignored;
  const std::string trace =
      engine.trace.empty() ? "" : std::filesystem::absolute(engine.trace, ignored).string();
  if (engine.name.size() >= sizeof request.engine.name || trace.size() >= sizeof request.path)
    return Error{Errc::invalid_argument, "the engine's name or the trace's is too long"};
  fakenvml::put_text(request.path, trace);
  fakenvml::put_text(request.engine.name, engine.name);
  request.engine.most_running = static_cast<std::uint32_t>(engine.running);
  request.engine.step_tokens = static_cast<std::uint32_t>(engine.step_tokens);
  request.engine.seed = static_cast<std::uint64_t>(engine.seed);
  request.engine.rate = engine.requests;
  request.engine.burst_at_s = burst.at_s;
  request.engine.burst_s = burst.length_s;
  request.engine.burst_times = burst.times;
  return request;
}

std::string engine_page(const EngineNow& now, const std::string& model) {
  Page page(model);
  page.number("num_requests_running", "gauge", now.running);
  page.number("num_requests_waiting", "gauge", now.waiting);
  page.number("kv_cache_usage_perc", "gauge", now.kv_share);
  page.number("prompt_tokens_total", "counter", now.prompt_tokens);
  page.number("generation_tokens_total", "counter", now.generated_tokens);
  const double steps[] = {now.steps};
  page.histogram("iteration_tokens_total", {}, steps, now.prompt_tokens + now.generated_tokens);
  page.histogram("time_to_first_token_seconds", vllm_first_token_edges(), now.first_token,
                 now.first_token_s);
  page.histogram("inter_token_latency_seconds", vllm_token_edges(), now.between_tokens,
                 now.between_tokens_s);
  return page.take();
}

Result<std::unique_ptr<HttpServer>> serve_engine(const std::string& address,
                                                 fakenvml::SimClient& client,
                                                 const std::string& model, Clock& clock) {
  HttpServerOptions how;
  how.kind_of = [](const HttpRequest&) { return HttpKind::health; };
  how.handle = [&client, model](const HttpCall& call) -> HttpReply {
    if (call.request.target != "/metrics") return error_response(404, "/metrics is here");
    return page_of(client, model);
  };
  return HttpServer::create(TRY(listen_loopback(address).with("--metrics")), clock, std::move(how));
}

}  // namespace derate::cli
