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
  if (!answer.ok()) return json_response(http_status(answer.error().code), answer_text(answer));
  Json whole = {{"ok", true}};
  whole.update(*answer);
  return json_response(http_status(whole), json_text(whole));
}

// Of a line that a router has made. Almost all begin in one way, and need not be read.
HttpResponse response_of_line(const std::string& text) {
  constexpr std::string_view kGood = R"({"ok":true)";
  return json_response(text.starts_with(kGood) ? 200 : http_status(parse_json(text)), text);
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
  Json out = TRY(parse_json(request.body, JsonLimits{}).with("the body"));
  if (!out.is_object()) return Error{Errc::invalid_argument, "the body: wanted a JSON object"};
  if (out.contains("command"))
    return Error{Errc::invalid_argument, "'command': the path names the operation"};
  return out;
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

ApiServer::ApiServer(Clock& clock, Options options)
    : clock_(clock),
      options_(std::move(options)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      reader_(options_.reading) {
  CHECK(wake_.valid());
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
  server.log = options_.log;
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
  if (const auto* refused = std::get_if<HttpResponse>(&admitted)) return *refused;
  const Peer& peer = std::get<Peer>(admitted);
  const HttpRequest& request = call.request;
  if (const Page* stream = stream_of(request)) return (*stream)(request, peer);
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

HttpReply ApiServer::handle(const Operation& operation, const HttpRequest& request,
                            const Peer& peer) {
  const bool reads = operation.changes == Changes::nothing;
  if (reads ? !is_read(request) : request.method != "POST")
    return wrong_method(http_method(operation));
  const Role role = peer.role.value_or(Role::reader);
  if (!may(role, operation))
    return response_of(
        Error{Errc::no_permission,
              fmt::format("{} wants the role {}, {} has {}", operation.name,
                          to_string(operation.role), caller_name(peer), to_string(role))});
  // What belongs to a user is told by the kernel alone.
  if (operation.changes == Changes::own && !peer.token.empty())
    return response_of(
        Error{Errc::no_permission,
              fmt::format("{} is for users of this machine, not for tokens", operation.name)});
  const auto fields = fields_of(operation, request);
  if (!fields.ok()) return response_of(fields.error());
  const auto local = local_.find(std::string_view(operation.name));
  if (local == local_.end()) return wait_for_loop(operation, *fields, peer);
  if (local->second.where == Where::beside)
    return read_beside(operation, local->second.answer, *fields, peer);
  return response_of(local->second.answer(*fields, peer));
}

HttpReply ApiServer::read_beside(const Operation& operation, const Local& local,
                                 const Json& request, const Peer& peer) {
  {
    const std::lock_guard lock(link_->mutex);
    std::size_t all = 0;
    for (const auto& [uid, count] : link_->reading) all += count;
    std::size_t& own = link_->reading[peer.uid];
    if (all >= kMostReading || own >= kMostReadingOfOneUser)
      return response_of(
          Error{Errc::busy, fmt::format("{}: too many are being read", operation.name)});
    ++own;
  }
  reader_.post([link = link_, local, request, peer] {
    HttpResponse response = response_of(local(request, peer));
    const std::lock_guard lock(link->mutex);
    if (--link->reading[peer.uid] == 0) link->reading.erase(peer.uid);
    if (link->server != nullptr) link->server->answer(peer.connection, std::move(response));
  });
  return HttpLater{};
}

HttpReply ApiServer::wait_for_loop(const Operation& operation, const Json& request,
                                   const Peer& peer) {
  Json line = {{"command", operation.name}};
  line.update(request);
  {
    const std::lock_guard lock(mutex_);
    const auto own = std::count_if(waiting_.begin(), waiting_.end(),
                                   [&](const Waiting& each) { return each.peer.uid == peer.uid; });
    if (waiting_.size() >= kMostWaiting || own >= static_cast<std::ptrdiff_t>(kMostOfOneUser))
      return response_of(
          Error{Errc::busy, fmt::format("{}: too many requests wait", operation.name)});
    waiting_.push_back({peer, &operation, json_text(line)});
  }
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  return HttpLater{};
}

// --- on the loop's thread ------------------------------------------------------------------------

std::optional<ApiServer::Waiting> ApiServer::take() {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) return std::nullopt;
  Waiting out = std::move(waiting_.front());
  waiting_.pop_front();
  return out;
}

void ApiServer::serve(CommandRouter& operators, CommandRouter& clients) {
  std::uint64_t count = 0;
  (void)!::read(wake_.get(), &count, sizeof count);
  budget_.begin(clock_.now());
  while (budget_.is_left(clock_.now())) {
    const auto waiting = take();
    if (!waiting) break;
    serve(*waiting, operators, clients);
  }
  budget_.end(clock_.now());
}

void ApiServer::serve(const Waiting& waiting, CommandRouter& operators, CommandRouter& clients) {
  Peer peer = waiting.peer;
  peer.connection += kFirstNumber;
  CommandRouter& router = operators.has(*waiting.operation) ? operators : clients;
  if (const auto answer = router.handle(waiting.text, peer)) this->answer(peer.connection, *answer);
}

void ApiServer::answer(std::uint64_t number, const std::string& text) {
  if (server_ != nullptr) server_->answer(number - kFirstNumber, response_of_line(text));
}

void ApiServer::refuse_all(const Error& why) {
  while (const auto waiting = take())
    if (server_ != nullptr) server_->answer(waiting->peer.connection, response_of(why));
}

void ApiServer::wake_streams() {
  if (server_ != nullptr) server_->wake_streams();
}

HttpServer::Figures ApiServer::figures() const {
  return server_ != nullptr ? server_->figures() : HttpServer::Figures{};
}

}  // namespace derate
