#include "service/http/api_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/json_limits.h"
#include "base/suggest.h"
#include "service/answers/caller_role.h"

namespace derate {
namespace {

HttpResponse json_response(int status, std::string text) {
  HttpResponse out{.status = status, .body = std::move(text)};
  out.body += '\n';
  constexpr int kTryAgain = 503;
  if (status == kTryAgain) out.fields.emplace_back("Retry-After", "1");
  return out;
}

HttpResponse response_of(const Result<Json>& answer) {
  const Json whole = whole_answer(answer);
  return json_response(http_status(whole), json_text(whole));
}

// The fields of a request, from its query or its body.
Result<Json> fields_of(const Operation& operation, const HttpRequest& request) {
  if (operation.changes == Changes::nothing) return request_of_query(operation, request.query);
  if (!request.query.empty())
    return Error{Errc::invalid_argument,
                 fmt::format("{} takes its fields as JSON in the body", operation.name)};
  // An empty body is more likely a slip than a wish for all GPUs.
  if (request.body.empty() && !operation.fields.empty())
    return Error{Errc::invalid_argument,
                 "the body is empty: wanted a JSON object, {} where no field is needed"};
  if (request.body.empty()) return Json(Json::object());
  if (request.body.size() > operation.longest)
    return Error{Errc::invalid_argument, fmt::format("the body has {} bytes, allowed are {}",
                                                     request.body.size(), operation.longest)};
  Json out = TRY(parse_json(request.body, {.keys = operation.keys}).with("the body"));
  if (!out.is_object()) return Error{Errc::invalid_argument, "the body: wanted a JSON object"};
  if (out.contains("command"))
    return Error{Errc::invalid_argument, "'command': the path names the operation"};
  return out;
}

// The request as a value, after its caller was found to have the role for it.
Result<Asked> asked_of(const Operation& operation, const HttpRequest& request, const Peer& peer) {
  TRY(check_role(operation, peer, Role::reader));
  const Json fields = TRY(fields_of(operation, request));
  Asked out{.operation = &operation, .request = {}, .peer = peer};
  out.request = TRY(request_named(operation.name, fields));
  return out;
}

Error with_way(Error refused, const std::string& way) {
  if (!way.empty()) refused.message += ": " + way;
  return refused;
}

HttpResponse wrong_method(const char* allowed) {
  HttpResponse out = error_response(405, fmt::format("allowed is {}", allowed));
  out.fields.emplace_back("Allow", allowed);
  return out;
}

bool is_read(const HttpRequest& request) {
  return request.method == "GET" || request.method == "HEAD";
}

Json index_json(const std::vector<std::string>& pages) {
  Json out = {{"ok", true}, {"operations", Json::array()}, {"pages", pages}};
  for (const Operation& each : operations())
    if (each.http)
      out["operations"].push_back({{"method", http_method(each)},
                                   {"path", http_path(each)},
                                   {"role", to_string(each.role)},
                                   {"what", each.what}});
  return out;
}

}  // namespace

ApiServer::ApiServer(Clock& clock, RequestDesk& desk, Options options)
    : clock_(clock),
      desk_(desk),
      options_(std::move(options)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reader_(options_.reading) {
  CHECK(wake_.valid());
  const auto answer = [this](std::uint64_t number, const Result<Json>& what) {
    if (server_ != nullptr) server_->answer(number - kFirstNumber, response_of(what));
  };
  desk_.operators.send_late(kFirstNumber, answer);
  desk_.clients.send_late(kFirstNumber, answer);
  add_page("/v1", HttpKind::control, [this](const HttpRequest&, const Peer&) -> HttpReply {
    std::vector<std::string> pages;
    for (const auto& [path, page] : pages_) pages.push_back(path);
    return json_response(200, json_text(index_json(pages), 2));
  });
  add_page("/v1/openapi.json", HttpKind::control,
           [text = json_text(openapi_json(options_.version), 2)](
               const HttpRequest&, const Peer&) -> HttpReply { return json_response(200, text); });
}

ApiServer::~ApiServer() {
  for (CommandRouter* router : {&desk_.operators, &desk_.clients})
    router->send_late(kFirstNumber, [](std::uint64_t, const Result<Json>&) {});
  const std::lock_guard lock(link_->mutex);
  link_->server = nullptr;
}

void ApiServer::add_page(const std::string& path, HttpKind kind, Page page) {
  pages_[path] = {kind, std::move(page)};
}

void ApiServer::add_stream(const std::string& path, const std::string& content_type, Page page) {
  streams_[{path, content_type}] = std::move(page);
}

Result<void> ApiServer::listen(UniqueFd socket) {
  HttpServerOptions server = options_.limits;
  server.kind_of = [this](const HttpRequest& head) { return kind_of(head); };
  server.handle = [this](const HttpCall& call) { return handle(call); };
  // A request may come before this returns: what it reads waits for the server to be known.
  const std::lock_guard lock(link_->mutex);
  server_ = TRY(HttpServer::create(std::move(socket), clock_, std::move(server)));
  link_->server = server_.get();
  return {};
}

// --- on the server's thread ----------------------------------------------------------------------

const ApiServer::Page* ApiServer::stream_of(const HttpRequest& request) const {
  const auto accepted = find_field(request.fields, "Accept");
  if (!accepted || request.method != "GET") return nullptr;
  for (const auto& [key, page] : streams_)
    if (key.first == request.path && accepted->find(key.second) != std::string::npos) return &page;
  return nullptr;
}

HttpKind ApiServer::kind_of(const HttpRequest& head) const {
  if (stream_of(head) != nullptr) return HttpKind::stream;
  const auto page = pages_.find(head.path);
  return page == pages_.end() ? HttpKind::control : page->second.kind;
}

HttpReply ApiServer::handle(const HttpCall& call) {
  const auto admitted = options_.admit(call.request, call.peer);
  if (const auto* refused = std::get_if<HttpResponse>(&admitted)) {
    const bool by_token = refused->status == 401;
    options_.refused(call.peer, by_token ? "a token that is not accepted" : "it has no role");
    return *refused;
  }
  const Peer& peer = std::get<Peer>(admitted);
  const HttpRequest& request = call.request;
  if (const Page* page = stream_of(request)) return stream(*page, request, call.peer, peer);
  if (const auto page = pages_.find(request.path); page != pages_.end()) {
    if (!is_read(request)) return wrong_method("GET");
    return page->second.page(request, peer);
  }
  if (const Operation* operation = http_operation(request.path))
    return handle(*operation, request, peer);
  std::string known;
  for (const Operation& each : operations())
    if (each.http) known += (known.empty() ? "" : ", ") + http_path(each);
  return error_response(404, fmt::format("'{}' is nothing of this server's{}", request.path,
                                         choices(request.path, "; GET /v1 lists ", known)));
}

// A stream outlives the check of its caller's token, user and groups. Once these are no longer
// admitted, the stream sends nothing more.
HttpReply ApiServer::stream(const Page& page, const HttpRequest& request, const Peer& from,
                            const Peer& admitted) const {
  HttpReply reply = page(request, admitted);
  auto* const begun = std::get_if<HttpStream>(&reply);
  if (begun == nullptr) return reply;
  begun->next = [admit = options_.admit, head = request, from, next = std::move(begun->next)] {
    return std::holds_alternative<Peer>(admit(head, from)) ? next() : std::nullopt;
  };
  return reply;
}

HttpReply ApiServer::handle(const Operation& operation, const HttpRequest& request,
                            const Peer& peer) {
  const bool reads = operation.changes == Changes::nothing;
  if (reads ? !is_read(request) : request.method != "POST")
    return wrong_method(http_method(operation));
  auto asked = asked_of(operation, request, peer);
  if (!asked.ok() && asked.error().code == Errc::no_permission)
    options_.refused(peer, asked.error().message);
  if (!asked.ok() && asked.error().code == Errc::no_permission)
    return response_of(with_way(asked.error(), options_.way_to(operation, peer)));
  if (!asked.ok()) return response_of(asked.error());
  const auto local = local_.find(std::string_view(operation.name));
  return local != local_.end() ? local->second(*asked) : wait_for_loop(*std::move(asked));
}

HttpReply ApiServer::reply_of(const Result<Json>& answer) { return response_of(answer); }

HttpReply ApiServer::read(const Asked& asked, const std::function<Job()>& begin) {
  const uid_t person = asked.peer.share();
  const std::size_t kept = asked.peer.has_kept_place() ? kKeptReading : 0;
  {
    const std::lock_guard lock(link_->mutex);
    std::size_t all = 0;
    for (const auto& [each, count] : link_->reading) all += count;
    std::size_t& own = link_->reading[person];
    if (all >= kMostReading + kept || own >= kMostReadingOfOneUser)
      return response_of(
          Error{Errc::busy, fmt::format("{}: too many are being read", asked.operation->name)});
    ++own;
  }
  reader_.post([link = link_, job = begin(), person, number = asked.peer.connection] {
    HttpResponse response = response_of(job());
    const std::lock_guard lock(link->mutex);
    if (--link->reading[person] == 0) link->reading.erase(person);
    if (link->server != nullptr) link->server->answer(number, std::move(response));
  });
  return HttpLater{};
}

HttpReply ApiServer::wait_for_loop(Asked asked) {
  asked.peer.connection += kFirstNumber;
  CommandRouter& router = desk_.router_of(*asked.operation);
  const auto put = desk_.queue.put(std::move(asked), router, RequestQueue::Door::http);
  if (!put.ok()) return response_of(put.error());
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  return HttpLater{};
}

// --- on the loop's thread ------------------------------------------------------------------------

void ApiServer::serve() {
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  budget_.begin(clock_.now());
  while (budget_.is_left(clock_.now()) && desk_.queue.serve_one()) {
  }
  budget_.end(clock_.now());
  // Tokens expire and are revoked, and settings change who may read. So the readers of streams are
  // checked again, even if no events come.
  constexpr Duration kLookEvery = std::chrono::seconds(1);
  if (clock_.now() - kLookEvery < looked_at_streams_) return;
  looked_at_streams_ = clock_.now();
  wake_streams();
}

void ApiServer::wake_streams() {
  if (server_ != nullptr) server_->wake_streams();
}

HttpServer::Figures ApiServer::figures() const {
  return server_ != nullptr ? server_->figures() : HttpServer::Figures{};
}

}  // namespace derate
