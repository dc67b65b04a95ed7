#include "pods_sidecar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <mutex>

#include "base/test_folder.h"
#include "integ/kube/pods_api.h"
#include "service/http/http_server.h"

namespace derate::pods {
namespace {

using namespace std::chrono_literals;

NodePod pod_of(int n, const std::string& delta = "") {
  NodePod out{.name = fmt::format("pod-{}", n), .name_space = "lab", .uid = fmt::format("u-{}", n)};
  if (!delta.empty()) out.annotations["derate.dev/delta"] = delta;
  return out;
}

// "pod-1=0.1 pod-2=" as the reader of the Pods API finds them in an answer.
std::string pods_in(const std::string& answer) {
  PodsReader reader("derate.dev");
  if (!reader.take(answer).ok()) return "bad";
  const auto pods = std::move(reader).finish();
  if (!pods.ok()) return "bad";
  std::string out;
  for (const ApiPod& pod : *pods)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", pod.name.pod,
                       pod.annotations.empty() ? "" : pod.annotations[0].second);
  return out;
}

// --- The mirror ----------------------------------------------------------------------------------

// The answer has the pods of the last list, with all changes after it.
RC_GTEST_PROP(PodMirrorProp, HasTheListWithTheChangesAfterIt, ()) {
  PodMirror mirror;
  std::map<std::string, NodePod> pods;
  std::string version;
  for (int i = *rc::gen::inRange(0, 40); i > 0; --i) {
    const int what = *rc::gen::inRange(0, 10);
    const NodePod pod = pod_of(*rc::gen::inRange(0, 6), *rc::gen::element("", "0.1", "0.2"));
    const std::string next = std::to_string(i);
    if (what == 0) {
      NodePods list{.version = next};
      pods.clear();
      for (int n = *rc::gen::inRange(0, 4); n > 0; --n) {
        list.pods.push_back(pod_of(n));
        pods[list.pods.back().uid] = list.pods.back();
      }
      mirror.take_list(list);
    } else if (what < 6) {
      RC_ASSERT(mirror.take_change({PodChange::Kind::present, pod, next}));
      pods[pod.uid] = pod;
    } else if (what < 8) {
      RC_ASSERT(mirror.take_change({PodChange::Kind::deleted, pod, next}));
      pods.erase(pod.uid);
    } else if (what == 8) {
      RC_ASSERT(mirror.take_change({PodChange::Kind::bookmark, {}, next}));
    } else {
      RC_ASSERT(!mirror.take_change({PodChange::Kind::failed, {}, ""}));
    }
    if (what != 9) version = next;
    std::string answer;
    for (const auto& [uid, each] : pods) answer += encode_listed_pod(each);
    RC_ASSERT(mirror.answer() == answer);
    RC_ASSERT(mirror.size() == pods.size());
    RC_ASSERT(mirror.version() == version);
  }
}

// --- What counts, and what is logged -------------------------------------------------------------

RC_GTEST_PROP(ApiServerStateProp, TheLastAnswerCountsForItsTime, ()) {
  ApiServerState state;
  Instant now{};
  std::optional<Instant> heard;
  std::string before;
  for (int i = *rc::gen::inRange(1, 60); i > 0; --i) {
    now += std::chrono::seconds(*rc::gen::inRange(1, 200));
    std::string news;
    if (*rc::gen::inRange(0, 3) == 0) {
      heard = now;
      news = state.heard(3, now);
    } else {
      news = state.failed({Errc::io, "away"}, now);
    }
    RC_ASSERT(state.counts() == (heard && now - *heard <= ApiServerState::kKeep));
    if (!state.counts()) heard.reset();
    RC_ASSERT(news.empty() || news != before);  // nothing is logged twice running
    if (!news.empty()) before = news;
  }
}

TEST(ApiServerState, Sentences) {
  ApiServerState state;
  const Error away{Errc::io, "away"};
  EXPECT_EQ(state.failed(away, {}), "API server: away; no pods are served");
  EXPECT_EQ(state.failed(away, {}), "");
  EXPECT_EQ(state.heard(2, {}), "API server: answers; 2 pods are on this node");
  EXPECT_EQ(state.heard(3, {}), "");
  EXPECT_EQ(state.failed(away, {}), "API server: away; the pods of its last answer are served");
  EXPECT_EQ(state.failed(away, Instant{} + 301s),
            "API server: no answer for 5 minutes; no pods are served: away");
  EXPECT_EQ(state.failed(away, Instant{} + 302s), "");
  EXPECT_EQ(state.watch_ended(away),
            "API server: pods are listed again and again, as a watch fails: away");
  EXPECT_EQ(state.watch_ended(away), "");
  EXPECT_EQ(state.watch_ended(std::nullopt), "");
  EXPECT_NE(state.watch_ended(away), "");
}

RC_GTEST_PROP(PodsLines, AreWholeHoweverTheyCome, ()) {
  std::string text, rest;
  std::vector<std::string> lines, got;
  for (int i = *rc::gen::inRange(0, 10); i > 0; --i) {
    lines.push_back(*rc::gen::container<std::string>(rc::gen::elementOf(std::string("ab{}"))));
    text += lines.back() + "\n";
  }
  LineReader reader;
  for (std::string_view left = text; !left.empty();) {
    const auto size = *rc::gen::inRange<std::size_t>(1, left.size() + 1);
    RC_ASSERT(reader.put(left.substr(0, size),
                         [&](std::string_view line) { return got.emplace_back(line), true; }));
    left.remove_prefix(size);
  }
  RC_ASSERT(got == lines);
}

TEST(PodsLines, ALineIsBounded) {
  LineReader reader;
  const auto never = [](std::string_view) { return ADD_FAILURE() << "no line", true; };
  const std::string half(LineReader::kLongest / 2, 'x');
  EXPECT_TRUE(reader.put(half, never));
  EXPECT_TRUE(reader.put(half, never));
  EXPECT_FALSE(reader.put("x", never));
}

TEST(PodsOptions, ErrorsNameTheValue) {
  const PodsSidecarOptions good{.socket = "/run/pods.sock",
                                .node = "gpu7.example.org",
                                .api_server = "/run/proxy.sock",
                                .prefix = "derate.dev"};
  EXPECT_TRUE(check_options(good).ok());
  const auto wrong = [](const PodsSidecarOptions& options) {
    const auto done = check_options(options);
    EXPECT_EQ(done.error().code, Errc::invalid_argument);
    return done.error().message;
  };
  for (const std::string& node :
       {std::string(), std::string("n1,metadata.name=x"), std::string("N1"), std::string("a..b"),
        std::string("-a"), std::string(254, 'a'), std::string("n1&watch")}) {
    PodsSidecarOptions options = good;
    options.node = node;
    EXPECT_TRUE(wrong(options).starts_with("--node '" + node + "': allowed is")) << node;
  }
  PodsSidecarOptions options = good;
  options.prefix = "derate.dev/x";
  EXPECT_TRUE(wrong(options).starts_with("--prefix 'derate.dev/x': allowed is"));
  options = good;
  options.api_server = "";
  EXPECT_EQ(wrong(options), "--api-server '': allowed is the path of a unix socket");
}

// --- Against a stand-in for the API server -------------------------------------------------------

std::string listed_pod(const std::string& name, const std::string& delta) {
  return fmt::format(R"({{"metadata":{{"name":"{0}","namespace":"lab","uid":"u-{0}",)"
                     R"("resourceVersion":"8","annotations":{{"derate.dev/delta":"{1}"}}}}}})",
                     name, delta);
}
std::string listed_pods(const std::string& version, const std::string& items) {
  return fmt::format(R"({{"kind":"PodList","metadata":{{"resourceVersion":"{}"}},"items":[{}]}})",
                     version, items);
}
std::string pod_event(const std::string& type, const std::string& object) {
  return fmt::format("{{\"type\":\"{}\",\"object\":{}}}\n", type, object);
}

struct PodsSidecarTest : testing::Test {
  PodsSidecarTest() {
    HttpServerOptions how;
    how.kind_of = [](const HttpRequest&) { return HttpKind::control; };
    how.handle = [this](const HttpCall& call) -> HttpReply {
      const std::lock_guard lock(mutex);
      asked.push_back(call.request.target);
      accepted.push_back(find_field(call.request.fields, "Accept").value_or(""));
      if (replies.empty()) return error_response(500, "no more");
      HttpReply out = std::move(replies.front());
      replies.pop_front();
      return out;
    };
    api_server = *HttpServer::create(*listen_unix(path, 0600), clock, std::move(how));
  }
  ~PodsSidecarTest() override { api_server.reset(); }

  void reply(HttpReply next) {
    const std::lock_guard lock(mutex);
    replies.push_back(std::move(next));
  }
  void reply_list(const std::string& version, const std::string& items) {
    reply(HttpResponse{.body = listed_pods(version, items)});
  }
  // A watch that has these events and ends.
  void reply_watch(std::deque<std::string> pieces) {
    reply(HttpStream{.content_type = "application/json",
                     .next = [pieces = std::move(pieces)]() mutable -> std::optional<std::string> {
                       if (pieces.empty()) return std::nullopt;
                       std::string out = std::move(pieces.front());
                       pieces.pop_front();
                       return out;
                     }});
  }
  std::vector<std::string> take_asked() {
    const std::lock_guard lock(mutex);
    return std::exchange(asked, {});
  }

  Folder folder;
  std::string path = folder.file("proxy.sock");
  SystemClock clock;
  std::mutex mutex;
  std::deque<HttpReply> replies;
  std::vector<std::string> asked, accepted;
  std::unique_ptr<HttpServer> api_server;
  std::vector<std::string> served;  // pods_in() of each answer
  PodsSidecar sidecar{{"", "n1.example", path, "derate.dev"},
                      [this](std::optional<std::string> answer) {
                        served.push_back(answer ? pods_in(*answer) : "none");
                      },
                      clock,
                      Log()};
};

constexpr const char* kOfNode =
    "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1.example%2Cstatus.phase%21%3DSucceeded"
    "%2Cstatus.phase%21%3DFailed";
constexpr const char* kWatched = "&watch=true&allowWatchBookmarks=true&timeoutSeconds=300";

TEST_F(PodsSidecarTest, ServesTheListAndEachChange) {
  reply_list("7", listed_pod("a", "0.1"));
  reply_watch({pod_event("ADDED", listed_pod("b", "0.2")) +
                   pod_event("BOOKMARK", R"({"metadata":{"resourceVersion":"9"}})"),
               pod_event("DELETED", listed_pod("a", "0.1"))});
  EXPECT_EQ(sidecar.round(), 1s);
  EXPECT_EQ(served.front(), "a=0.1");
  EXPECT_EQ(served.back(), "b=0.2");
  EXPECT_TRUE(accepted.at(0).starts_with("application/json;as=PartialObjectMetadataList;"));
  EXPECT_TRUE(accepted.at(1).starts_with("application/json;as=PartialObjectMetadata;"));
  EXPECT_EQ(take_asked(),
            (std::vector<std::string>{std::string(kOfNode) + "&resourceVersion=0",
                                      std::string(kOfNode) + "&resourceVersion=7" + kWatched}));
  // The next list is not older than what was seen last: the pod that was deleted, of version 8.
  reply_list("10", "");
  reply_watch({});
  EXPECT_EQ(sidecar.round(), 1s);
  EXPECT_EQ(take_asked().front(), std::string(kOfNode) + "&resourceVersion=8");
  EXPECT_EQ(served.back(), "");
}

TEST_F(PodsSidecarTest, AVersionThatIsTooOldIsForgotten) {
  for (const bool in_stream : {false, true}) {
    reply_list("7", listed_pod("a", "0.1"));
    if (in_stream)
      reply_watch({pod_event("ERROR", R"({"kind":"Status","code":410,"message":"too old"})")});
    else
      reply(error_response(410, "too old"));
    EXPECT_EQ(sidecar.round(), 1s);
    take_asked();
    reply_list("8", listed_pod("a", "0.3"));
    reply(error_response(410, "too old"));
    EXPECT_EQ(sidecar.round(), 1s);
    EXPECT_EQ(take_asked().front(), std::string(kOfNode) + "&resourceVersion=0");
    EXPECT_EQ(served.back(), "a=0.3");
  }
}

TEST_F(PodsSidecarTest, WhileTheApiServerFailsTheLastAnswerIsServed) {
  reply_list("7", listed_pod("a", "0.1"));
  reply(error_response(403, "no watch"));
  EXPECT_EQ(sidecar.round(), 1s);
  const std::size_t before = served.size();
  reply(error_response(500, "etcd is away"));
  EXPECT_EQ(sidecar.round(), 2s);
  reply(HttpResponse{.body = "{}"});
  EXPECT_EQ(sidecar.round(), 4s);
  api_server.reset();
  EXPECT_EQ(sidecar.round(), 8s);
  EXPECT_EQ(sidecar.round(), 10s);
  EXPECT_EQ(served.size(), before);
}

TEST_F(PodsSidecarTest, BeforeTheFirstAnswerNoneIsServed) {
  reply(error_response(403, "pods is forbidden"));
  EXPECT_EQ(sidecar.round(), 2s);
  EXPECT_EQ(served, (std::vector<std::string>{"none"}));
}

// An event that is none ends the watch; the pods that were known stay.
TEST_F(PodsSidecarTest, ABadEventEndsTheWatch) {
  reply_list("7", listed_pod("a", "0.1"));
  reply_watch({"no event\n", pod_event("ADDED", listed_pod("b", "0.2"))});
  EXPECT_EQ(sidecar.round(), 1s);
  EXPECT_EQ(served.back(), "a=0.1");
}

}  // namespace
}  // namespace derate::pods
