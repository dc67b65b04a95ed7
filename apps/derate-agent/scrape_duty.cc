#include "scrape_duty.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "api/http_operation.h"
#include "api/operations.h"
#include "api/requests.h"
#include "base/background_worker.h"
#include "base/json.h"
#include "base/printing.h"
#include "duties.h"

namespace derate::agent {
namespace {

constexpr Duration kPatience = std::chrono::seconds(4);
constexpr Duration kListEvery = std::chrono::seconds(5);
// Readings that come together go in one report.
constexpr Duration kGather = std::chrono::milliseconds(20);
constexpr std::size_t kLongestModel = 200;
constexpr Duration kMostSleep = std::chrono::milliseconds(500);

// A page that is read on a thread of its own until it ends.
struct PageReader {
  ScrapeTarget target;
  std::atomic<bool> ended{false};
};

Result<Json> ask(const std::vector<std::string>& sockets, const AnyRequest& request) {
  const Operation& operation = *find_operation(operation_of(request));
  HttpAsk ask{.method = http_method(operation), .target = http_path(operation)};
  if (operation.changes != Changes::nothing) {
    ask.fields.emplace_back("Content-Type", "application/json");
    ask.body = json_text(request_json(request));
  }
  const HttpResponse answer = TRY(call_derated(sockets, ask, kPatience));
  if (answer.status != 200)
    return Error{errc_of_status(answer.status),
                 fmt::format("derated answered {} to {}: {}", answer.status, operation.name,
                             text_at(parse_json(answer.body), "error"))};
  return parse_json(answer.body);
}

// A failure that begins, and its end, in the log.
class News {
 public:
  News(Log log, std::string what) : log_(std::move(log)), what_(std::move(what)) {}
  void good() {
    if (std::exchange(fails_, false)) log_.info(what_ + ": works again");
  }
  void bad(const Error& error) {
    if (!std::exchange(fails_, true))
      log_.warning(fmt::format("{}: {}", what_, log_text(error.message, 300)));
  }

 private:
  Log log_;
  std::string what_;
  bool fails_ = false;
};

ServiceReading reading_by(const ScrapeTarget& target, const Result<EngineReading>& read) {
  ServiceReading out = read.ok() ? reading_of(target.service, *read)
                                 : ServiceReading{.error = log_text(read.error().message, 300)};
  out.service = target.service;
  out.metrics = target.metrics;
  out.wanted_model = target.model;
  // A label of a page may be as long as its line, and a report has its limit.
  out.model = log_text(out.model, kLongestModel);
  return out;
}

void sleep_until_due(Clock& clock, Instant until, const PageReader& reader) {
  while (!reader.ended && clock.now() < until)
    (void)clock.sleep_until(std::min(until, clock.now() + kMostSleep));
}

// Pages of the same interval are read at the same moments, so that one report has them all.
Instant next_turn(Instant now, Duration every) {
  return now + every - now.time_since_epoch() % every;
}

void read_forever(const PageReader& reader, Readings& to, const Log& log) {
  SystemClock clock;
  News news(log, fmt::format("service {}", reader.target.service));
  for (int failures = 0; !reader.ended;) {
    auto read = scrape(reader.target, clock);
    const Instant now = clock.now();
    failures = read.ok() ? 0 : failures + 1;
    if (read.ok())
      news.good();
    else
      news.bad(read.error());
    if (!reader.ended) to.put(reading_by(reader.target, read), now);
    sleep_until_due(clock, next_turn(now, scrape_after(failures, reader.target.every)), reader);
  }
}

// The pages that derated wants to have read now.
class Pages {
 public:
  Pages(std::shared_ptr<Readings> to, Log log) : to_(std::move(to)), log_(std::move(log)) {}

  void take(const ServicesAnswer& wanted) {
    std::vector<ScrapeTarget> targets;
    for (const ServiceView& service : wanted.services)
      if (auto target = scrape_target(service); target.ok()) targets.push_back(*std::move(target));
    if (targets.size() > ScrapeDuty::kMost) {
      targets.resize(ScrapeDuty::kMost);
      if (!std::exchange(too_many_, true))
        log_.warning(fmt::format("{} services: the first {} are read, and no more",
                                 wanted.services.size(), ScrapeDuty::kMost));
    }
    std::erase_if(readers_, [&](const std::shared_ptr<PageReader>& reader) {
      reader->ended = std::find(targets.begin(), targets.end(), reader->target) == targets.end();
      return reader->ended.load();
    });
    for (ScrapeTarget& target : targets) begin(std::move(target));
  }

 private:
  void begin(ScrapeTarget target) {
    for (const auto& reader : readers_)
      if (reader->target == target) return;
    auto reader = std::make_shared<PageReader>();
    reader->target = std::move(target);
    log_.info(fmt::format("service {}: reading http://{}{} every {:g} s", reader->target.service,
                          reader->target.url.authority(), reader->target.url.path,
                          seconds(reader->target.every)));
    readers_.push_back(reader);
    start_thread([reader, to = to_, log = log_] { read_forever(*reader, *to, log); });
  }

  std::shared_ptr<Readings> to_;
  Log log_;
  std::vector<std::shared_ptr<PageReader>> readers_;
  bool too_many_ = false;
};

[[noreturn]] void report_forever(const ScrapeDuty& duty) {
  SystemClock clock;
  const auto readings = std::make_shared<Readings>();
  Pages pages(readings, duty.log);
  News news(duty.log, "metrics of services are not reported");
  for (Instant list = clock.now();;) {
    if (clock.now() >= list) {
      list = clock.now() + kListEvery;
      const auto answer = ask(duty.sockets, ServiceList{});
      const auto wanted = answer.ok() ? derate::answer_of<ServicesAnswer>(*answer) : answer.error();
      // While derated is away what it wanted last is read on.
      if (wanted.ok()) pages.take(*wanted);
    }
    const auto all = readings->take(clock, list - clock.now());
    if (all.empty()) continue;
    const auto reported = ask(duty.sockets, ServiceReport{all});
    if (reported.ok())
      news.good();
    else
      news.bad(reported.error());
  }
}

}  // namespace

std::size_t size_of(const ServiceReading& reading) {
  constexpr std::size_t kNumber = 20, kRest = 500;
  std::size_t numbers = 0;
  for (const auto* each : {&reading.between_tokens, &reading.first_token})
    if (*each) numbers += (*each)->edges_seconds.size() + (*each)->counts.size();
  return kRest + reading.error.size() + kNumber * numbers;
}

std::string read_once(const ScrapeTarget& target, Clock& clock) {
  auto read = scrape(target, clock);
  return json_text(request_json(ServiceReport{{reading_by(target, read)}}));
}

void Readings::put(ServiceReading next, Instant read) {
  const std::lock_guard lock(mutex_);
  const std::string service = next.service;
  newest_.insert_or_assign(service, Entry{std::move(next), read});
  news_.notify_one();
}

std::vector<ServiceReading> Readings::take(Clock& clock, Duration patience) {
  std::unique_lock lock(mutex_);
  news_.wait_for(lock, std::max(patience, Duration{}), [&] { return !newest_.empty(); });
  if (!newest_.empty()) news_.wait_for(lock, kGather, [] { return false; });
  std::vector<ServiceReading> out;
  std::size_t bytes = 0;
  const Instant now = clock.now();
  while (!newest_.empty()) {
    Entry& entry = newest_.begin()->second;
    bytes += size_of(entry.reading);
    if (!out.empty() && bytes > kMostBytes) break;
    entry.reading.age_seconds = std::clamp(seconds(now - entry.read), 0.0, 3600.0);
    out.push_back(std::move(entry.reading));
    newest_.erase(newest_.begin());
  }
  return out;
}

void start_scraping(ScrapeDuty duty) {
  start_thread([duty = std::move(duty)] { report_forever(duty); });
}

}  // namespace derate::agent
