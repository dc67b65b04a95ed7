#include "api.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/number.h"
#include "base/printing.h"
#include "base/text.h"
#include "config/paths.h"
#include "service/http/admission.h"
#include "service/metrics/metric_catalogue.h"
#include "service/records/bill_query.h"
#include "service/records/health.h"
#include "service/records/history_queries.h"

namespace derate::cli {
namespace {

std::string hostname() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

void add_what_is_known(ApiServer& api, const SnapshotBoard& board, Clock& clock) {
  api.add<StatusRead>([&board, &clock](const StatusRead& request, const Peer& peer) {
    auto out = status_answer(
        *board.latest(), request.gpus,
        {.now = clock.now(), .time = clock.wall_now(), .host = printing_text(hostname())});
    if (out.ok() && peer.role) (*out)["role"] = to_string(*peer.role);
    return out;
  });
  api.add<AttributionRead>([&board](const AttributionRead& request, const Peer&) {
    return attribution_page(*board.latest(), request.after);
  });
}

// Those that are open, and those that were, as before a pause, where no other has their index now.
std::vector<GpuId> known_gpus(const SnapshotBoard& board) {
  const auto latest = board.latest();
  std::vector<GpuId> out;
  for (const GpuSnapshot& gpu : latest->gpus) out.push_back(gpu.id);
  for (const AwayGpu& gpu : latest->away)
    if (std::none_of(out.begin(), out.end(),
                     [&](const GpuId& other) { return other.index == gpu.id.index; }))
      out.push_back(gpu.id);
  std::sort(out.begin(), out.end(),
            [](const GpuId& a, const GpuId& b) { return a.index < b.index; });
  return out;
}

// Each reads the history's file, on the thread for that, which may go on when the worker and its
// clock are gone: a job has the request, the time, the names of the GPUs and a share of the record
// of failures.
void add_history(ApiServer& api, const ApiParts& parts) {
  const auto add = [&]<class Request>(const Request&, auto answer) {
    api.add_reading<Request>(
        [answer, file = history_file(), failures = parts.worker.history().failures(),
         &board = parts.worker.board(), &clock = parts.clock](const Request& request) {
          return
              [answer, file, failures, request, now = clock.wall_now(), gpus = known_gpus(board)] {
                auto out = answer(file, request, now, gpus);
                if (!out.ok()) failures->add(out.error());
                return out;
              };
        });
  };
  add(HistoryRead{}, answer_history);
  add(SavingsRead{}, answer_savings);
  add(EventsRead{}, answer_events);
  add(WhyRead{}, answer_why);
  api.add_reading<BillRead>([file = usage_file(), &board = parts.worker.board(),
                             &clock = parts.clock](const BillRead& request) {
    return [file, request, now = clock.wall_now(), gpus = known_gpus(board)] {
      return answer_bill(file, request, now, gpus);
    };
  });
}

// The status that a monitor looks at, and the reason for people.
HttpReply health_reply(const Health& health) {
  return HttpResponse{.status = health.good ? 200 : 503,
                      .content_type = "text/plain; charset=utf-8",
                      .body = (health.good ? "ok" : "no") +
                              (health.reason.empty() ? "" : ": " + health.reason) + "\n"};
}

HttpReply metrics_reply(const HttpRequest& request, const Snapshot& snapshot, Instant now,
                        const Worker& worker) {
  const std::string accepted = find_field(request.fields, "Accept").value_or("");
  const bool open = accepted.find("application/openmetrics-text") != std::string::npos;
  const MetricsOptions options{
      .format = open ? MetricFormat::openmetrics : MetricFormat::prometheus,
      .dcgm_names = worker.dcgm_names(),
      .dcgm_parts = worker.dcgm_parts(),
      .version = DERATE_VERSION,
      .hostname = hostname(),
      .now = now};
  return HttpResponse{.content_type = content_type(options.format),
                      .body = metrics_text(snapshot, options)};
}

void add_monitoring(ApiServer& api, const ApiParts& parts) {
  const SnapshotBoard& board = parts.worker.board();
  Clock& clock = parts.clock;
  api.add_page("/livez", HttpKind::health, [&](const HttpRequest&, const Peer&) {
    return health_reply(livez(*board.latest(), clock.now()));
  });
  api.add_page("/readyz", HttpKind::health, [&](const HttpRequest&, const Peer&) {
    return health_reply(readyz(*board.latest(), clock.now()));
  });
  api.add_page("/metrics", HttpKind::health,
               [&board, &clock, &worker = parts.worker](const HttpRequest& request, const Peer&) {
                 return metrics_reply(request, *board.latest(), clock.now(), worker);
               });
}

// What a listener wants of the events, as its query says.
Result<EventFilter> event_filter(const HttpRequest& request, const std::vector<GpuId>& gpus) {
  EventFilter out;
  for (const auto& [key, value] : request.query) {
    if (key == "gpu") {
      for (const int at : TRY(select_gpus(gpus, value)))
        out.gpus.push_back(gpus[static_cast<std::size_t>(at)].uuid);
    } else if (key == "events") {
      for (const std::string_view name : split(value, ',')) {
        const EventInfo* info = find_event(name);
        if (info == nullptr)
          return Error{Errc::invalid_argument, fmt::format("events '{}': no such event", name)};
        out.kinds.push_back(info->kind);
      }
    } else if (key == "severity") {
      const auto least = find_severity(value);
      if (!least)
        return Error{Errc::invalid_argument,
                     fmt::format("severity '{}': allowed are info, warning, error", value)};
      out.least = *least;
    } else {
      return Error{
          Errc::invalid_argument,
          fmt::format("'{}' is no field of the stream; there are gpu, events, severity", key)};
    }
  }
  return out;
}

HttpReply event_reply(const HttpRequest& request, const ApiParts& parts) {
  auto filter = event_filter(request, known_gpus(parts.worker.board()));
  if (!filter.ok()) return error_response(400, filter.error().message);
  std::optional<std::int64_t> last;
  if (const auto id = find_field(request.fields, "Last-Event-ID")) {
    last = parse_number<std::int64_t>(*id);
    if (!last) return error_response(400, fmt::format("Last-Event-ID '{}': wanted a number", *id));
  }
  return HttpStream{.next = event_stream(parts.worker.events(), *std::move(filter), last)};
}

}  // namespace

Result<std::unique_ptr<ApiServer>> serve_api(const ApiParts& parts) {
  ApiServer::Options options{.version = DERATE_VERSION};
  options.admit = [&worker = parts.worker](const HttpRequest& request, const Peer& peer) {
    return admit(request, peer, worker.roles(), worker.tokens());
  };
  options.limits.shares = parts.shares;
  options.limits.carries = [&worker = parts.worker](const Peer& peer) {
    return worker.roles().of(peer) == Role::agent;
  };
  options.limits.share_of = [&worker = parts.worker](const HttpRequest& head, const Peer& peer) {
    return share_of(head, peer, worker.roles(), worker.tokens());
  };
  options.limits.closer = parts.closer;
  options.refused = [&worker = parts.worker](const Peer& peer, const std::string& why) {
    worker.refusals().add("api.sock", caller_name(peer), why);
  };
  options.way_to = [&worker = parts.worker](const Operation& operation, const Peer& peer) {
    return worker.roles().way_to(operation, peer);
  };
  auto out = std::make_unique<ApiServer>(parts.clock, parts.worker.desk(), std::move(options));
  add_what_is_known(*out, parts.worker.board(), parts.clock);
  add_history(*out, parts);
  add_monitoring(*out, parts);
  out->add_stream(
      "/v1/events", "text/event-stream",
      [parts](const HttpRequest& request, const Peer&) { return event_reply(request, parts); });
  TRY(out->listen(TRY(listen_unix(api_socket(), 0666))));
  return out;
}

}  // namespace derate::cli
