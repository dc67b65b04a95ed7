#include "agent.h"

#include <fmt/format.h>
#include <unistd.h>

#include <map>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "duties.h"
#include "service/http/http_server.h"
#include "service/transport/loopback_peer.h"
#include "service/transport/people.h"
#include "token_gate.h"

namespace derate::agent {
namespace {

HttpResponse too_many(std::string_view what) {
  HttpResponse out = error_response(429, what);
  out.fields = {{"Retry-After", "1"}};
  out.close = true;
  return answer_of(std::move(out));
}

// A wrong token costs its connection: the next try needs another.
HttpResponse answer_to_token(HttpResponse answer) {
  if (answer.status == 401) answer.close = true;
  return answer_of(std::move(answer));
}

// A page has the rights of its user, so connections of other users are refused, with a code or
// without. Root has those rights anyway, and sshd or a container's runtime forwards for the user as
// root.
std::optional<HttpResponse> turn_others_away(const Peer& caller) {
  if (caller.person == ::geteuid() || caller.person == 0) return std::nullopt;
  HttpResponse out = error_response(
      403, fmt::format("this page is of user {}: it is served to that user alone", ::geteuid()));
  out.close = true;
  return answer_of(std::move(out));
}

// All clients of a proxy count as the proxy's user. So a limit per user equals the limit of all,
// and a user is held to a share of it only while other users wait.
HttpServerOptions server_options(Clock& clock, bool own_page) {
  HttpServerOptions out;
  out.kind_of = [](const HttpRequest& head) {
    switch (duty_of(head)) {
      case Duty::control:
        return HttpKind::control;
      case Duty::stream:
        return HttpKind::stream;
      case Duty::session:
        return HttpKind::control;
      case Duty::own_text:
      case Duty::own_page:
      case Duty::page:
        break;
    }
    return HttpKind::health;
  };
  // A user's subordinate ids share that user's places. A page of `derate ui` refuses these ids.
  if (own_page)
    out.user_of = user_of_peer;
  else
    out.user_of = [&clock, people = std::make_shared<People>()](const UniqueFd& caller) {
      people->look(clock.now());
      const auto user = user_of_peer(caller);
      return user ? std::optional(people->person()(*user)) : std::nullopt;
    };
  out.most_of_a_user = out.most_connections;
  out.most_streams = out.most_streams_of_a_user = Streams::kMost;
  // Who asks too often would take it from all: the server's shares of time bound them before.
  out.requests_a_second_of_a_user = 20'000;
  return out;
}

}  // namespace

// Destroyed from the last on: first nothing more comes in.
struct Agent::State {
  AgentOptions options;
  Clock& clock;
  std::shared_ptr<TokenGate> gate = std::make_shared<TokenGate>();
  std::shared_ptr<Answers> answers = std::make_shared<Answers>();
  std::map<std::string, CachedPage> pages = {};  // by what is asked for: four at most
  ForwardPool operations{clock, ForwardPool::kThreads};
  Streams streams{answers};

  HttpReply handle(const HttpCall& call);
  HttpReply begin_session(std::string_view code);
  void take_session(HttpAsk& ask) const;
  HttpReply page(std::uint64_t number, const HttpAsk& ask);
  HttpReply operation(const Peer& from, HttpAsk ask);
  HttpReply stream(const Peer& from, HttpAsk ask);
};

HttpReply Agent::State::handle(const HttpCall& call) {
  Verdict verdict = judge(call.request, options.rules);
  if (auto* refused = std::get_if<HttpResponse>(&verdict)) return std::move(*refused);
  auto& passed = std::get<Passed>(verdict);
  const std::uint64_t number = call.peer.connection;
  switch (passed.duty) {
    case Duty::own_text:
      break;
    case Duty::own_page:
      return own_page();
    case Duty::session:
      return begin_session(passed.ask.body);
    case Duty::page:
      return page(number, passed.ask);
    case Duty::control:
      return operation(call.peer, std::move(passed.ask));
    case Duty::stream:
      return stream(call.peer, std::move(passed.ask));
  }
  return own_text();
}

HttpReply Agent::State::begin_session(std::string_view code) {
  const auto token = options.session ? options.session->exchange(code) : std::nullopt;
  if (!token) {
    HttpResponse out =
        error_response(403, "this address was used already: `derate ui` makes another");
    out.close = true;
    return answer_of(std::move(out));
  }
  options.session_begun();
  return answer_of({.body = json_text({{"ok", true}, {"token", *token}})});
}

// What comes with the session's token is asked as the user of this process; derated knows no such
// token.
void Agent::State::take_session(HttpAsk& ask) const {
  if (!options.session) return;
  std::erase_if(ask.fields, [&](const auto& field) {
    return to_lower(field.first) == "authorization" && options.session->admits(field.second);
  });
}

HttpReply Agent::State::page(std::uint64_t number, const HttpAsk& ask) {
  const std::string key = ask.target + " " + find_field(ask.fields, "Accept").value_or("");
  auto known = pages.find(key);
  if (known == pages.end())
    known = pages
                .try_emplace(
                    key,
                    [sockets = options.sockets, ask] {
                      return call_derated(sockets, ask, CachedPage::kPatience);
                    },
                    answers, clock, BackgroundWorker::Where::on_a_thread)
                .first;
  if (auto answer = known->second.ask(number)) return *std::move(answer);
  return HttpLater{};
}

HttpReply Agent::State::operation(const Peer& from, HttpAsk ask) {
  const std::uint64_t number = from.connection;
  const std::string token = find_field(ask.fields, "Authorization").value_or("");
  if (!gate->may_ask(token, from.share(), clock.now()))
    return too_many("too many requests with this token");
  take_session(ask);
  // None of it refers to the agent, which may have gone.
  const bool taken = operations.put([number, token, ask = std::move(ask), sockets = options.sockets,
                                     to = answers, known = gate](Duration patience) {
    if (patience <= Duration::zero())
      return to->answer(number, unavailable({Errc::busy, "derated is too slow: others wait, too"}));
    auto answer = call_derated(sockets, ask, patience);
    if (!answer.ok()) return to->answer(number, unavailable(answer.error()));
    known->heard(token, answer->status);
    to->answer(number, answer_to_token(*std::move(answer)));
  });
  if (!taken) return unavailable({Errc::busy, "too many operations wait for derated"});
  return HttpLater{};
}

HttpReply Agent::State::stream(const Peer& from, HttpAsk ask) {
  const std::uint64_t number = from.connection;
  const std::string token = find_field(ask.fields, "Authorization").value_or("");
  if (!gate->may_ask(token, from.share(), clock.now()))
    return too_many("too many requests with this token");
  take_session(ask);
  const bool taken = streams.begin(
      number,
      [ask = std::move(ask), sockets = options.sockets](
          int stop_fd, const std::function<bool(std::string_view)>& take) {
        return stream_derated(sockets, ask, stop_fd, take);
      },
      [token, known = gate](int status) { known->heard(token, status); });
  if (!taken)
    return too_many(fmt::format("there are {} streams: no more are allowed", Streams::kMost));
  return HttpLater{};
}

Agent::Agent(std::unique_ptr<State> state) : state_(std::move(state)) {}

Agent::~Agent() { state_->answers->close(); }

Result<std::unique_ptr<Agent>> Agent::create(UniqueFd listening, Clock& clock,
                                             AgentOptions options) {
  std::unique_ptr<State> state(new State{std::move(options), clock});
  HttpServerOptions how = server_options(clock, state->options.session.has_value());
  if (state->options.session) how.turn_away = turn_others_away;
  how.handle = [&here = *state](const HttpCall& call) { return here.handle(call); };
  how.gone = [&here = *state](const Peer& peer) { here.streams.end(peer.connection); };
  TRY(state->answers->open(
      [&] { return HttpServer::create(std::move(listening), clock, std::move(how)); }));
  return std::unique_ptr<Agent>(new Agent(std::move(state)));
}

}  // namespace derate::agent
