#include "integ/kube/pod_list.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/json.h"
#include "integ/kube/protobuf.h"

namespace derate {
namespace {

const std::string kOurPrefix = "derate.dev";

std::string pod_json(const std::string& metadata, const std::string& rest = "") {
  return fmt::format(R"({{"metadata":{{{}}}{}}})", metadata, rest);
}
std::string list_json(const std::string& items) {
  return fmt::format(R"({{"kind":"PodList","metadata":{{"resourceVersion":"77"}},"items":[{}]}})",
                     items);
}
const std::string kNamed = R"("name":"a","namespace":"lab","uid":"u-1")";

NodePod only_pod(const std::string& metadata, const std::string& rest = "") {
  const auto list = parse_pod_list(list_json(pod_json(metadata, rest)), kOurPrefix);
  EXPECT_TRUE(list.ok()) << (list.ok() ? "" : list.error().message);
  return list.ok() && list->pods.size() == 1 ? list->pods[0] : NodePod{};
}
std::string list_error(const std::string& json) {
  const auto list = parse_pod_list(json, kOurPrefix);
  if (list.ok()) return "";
  EXPECT_EQ(list.error().code, Errc::bad_data);
  return list.error().message;
}

// --- The API server's JSON -----------------------------------------------------------------------

TEST(PodList, KeepsNamesStatesAndAnnotationsOfThePrefix) {
  const NodePod pod = only_pod(
      kNamed +
          R"(,"annotations":{"derate.dev/delta":"0.1","derate.devx/delta":"9","other/x":"y"},)"
          R"("labels":{"derate.dev/policy":"none"},"deletionTimestamp":"2026-11-30T04:44:02Z",)"
          R"("managedFields":[{"fieldsV1":{"f:metadata":{"name":"b","uid":"c"}}}])",
      R"(,"spec":{"nodeName":"n1","containers":[{"name":"x","nodeName":"n2"}]},)"
      R"("status":{"phase":"Running","conditions":[{"phase":"no"}]})");
  EXPECT_EQ(pod, (NodePod{.name = "a",
                          .name_space = "lab",
                          .uid = "u-1",
                          .node = "n1",
                          .phase = "Running",
                          .deleted_s = 1796013842,
                          .annotations = {{"derate.dev/delta", "0.1"}}}));
}

TEST(PodList, APodWithoutAnnotationsIsListed) {
  EXPECT_EQ(only_pod(kNamed), (NodePod{.name = "a", .name_space = "lab", .uid = "u-1"}));
  EXPECT_EQ(only_pod(kNamed + R"(,"annotations":null,"deletionTimestamp":null)"),
            (NodePod{.name = "a", .name_space = "lab", .uid = "u-1"}));
  const auto none = parse_pod_list(list_json(""), kOurPrefix);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(*none, (NodePods{.version = "77"}));
}

TEST(PodList, ADeletionTimeThatIsNoneStillMarksThePod) {
  for (const char* time : {"", "soon", "2026-11-30T04:44:02+00:00", "2026-13-30T04:44:02Z",
                           "2026-02-29T00:00:00Z", "2026-11-30 04:44:02Z", "2026-1 -30T04:44:02Z"})
    EXPECT_EQ(only_pod(kNamed + fmt::format(R"(,"deletionTimestamp":"{}")", time)).deleted_s, 0)
        << time;
}

TEST(PodList, MetadataAloneIsAList) {
  const auto list = parse_pod_list(
      fmt::format(R"({{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"77"}},)"
                  R"("items":[{{"kind":"PartialObjectMetadata","metadata":{{{}}}}}]}})",
                  kNamed),
      kOurPrefix);
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(list->pods, (std::vector<NodePod>{{.name = "a", .name_space = "lab", .uid = "u-1"}}));
}

// A value that was cut is never one that parses.
TEST(PodList, ALongValueIsCut) {
  const auto value_of = [](const std::string& value) {
    return only_pod(kNamed + fmt::format(R"(,"annotations":{{"derate.dev/delta":"{}"}})", value))
        .annotations.at("derate.dev/delta");
  };
  const std::string most(NodePod::kLongestValue, ' ');
  EXPECT_EQ(value_of(most), most);
  EXPECT_EQ(value_of(most + " "), most + "...");
  EXPECT_EQ(value_of(most.substr(1) + "\u00e4"), most.substr(1) + "...");
}

// The first keys by name are kept, so that no order of the keys in the text matters.
TEST(PodList, APodWithTooManyKeysHasNoValues) {
  std::string keys;
  for (int i = 0; i < 9; ++i)
    keys += fmt::format(R"({}"derate.dev/k{}":"0.1")", i == 0 ? "" : ",", 9 - i);
  const NodePod pod = only_pod(kNamed + R"(,"annotations":{)" + keys + "}");
  EXPECT_EQ(pod.annotations.size(), NodePod::kMostKeys);
  EXPECT_EQ(pod.annotations.count("derate.dev/k9"), 0u);
  for (const auto& [key, value] : pod.annotations) EXPECT_EQ(value, "") << key;
}

TEST(PodList, ErrorsSayWhatIsWrong) {
  EXPECT_EQ(list_error(""), "no JSON");
  EXPECT_EQ(list_error("[]"), "kind '', allowed are PodList and PartialObjectMetadataList");
  EXPECT_EQ(list_error(R"({"kind":"Status","message":"no"})"),
            "kind 'Status', allowed are PodList and PartialObjectMetadataList");
  EXPECT_EQ(list_error(R"({"kind":"PodList"})"), "no items");
  EXPECT_EQ(list_error(R"({"kind":"PodList","items":{"a":{}}})"), "no items");
  EXPECT_EQ(list_error(R"({"kind":"PodList","metadata":{"continue":"x"},"items":[]})"),
            "not the whole list");
  EXPECT_EQ(list_error(list_json("{}")), "a pod whose name or namespace Kubernetes does not allow");
  EXPECT_EQ(list_error(list_json(pod_json(R"("name":"A","namespace":"lab","uid":"u")"))),
            "a pod whose name or namespace Kubernetes does not allow");
  EXPECT_EQ(list_error(list_json(pod_json(R"("name":"a","namespace":"lab")"))),
            "pod lab/a: its UID is not valid");
  EXPECT_EQ(list_error(list_json(pod_json(kNamed, R"(,"x":)" + std::string(200, '[')))),
            "more than 128 levels");
  EXPECT_EQ(list_error(std::string((64 << 20) + 1, ' ')), "more than 67108864 bytes");
}

TEST(PodList, HasTenThousandPodsAtMost) {
  std::string items = pod_json(kNamed);
  for (std::size_t i = 1; i < kMostListedPods; ++i) items += "," + pod_json(kNamed);
  EXPECT_EQ(list_error(list_json(items)), "");
  EXPECT_EQ(list_error(list_json(items + "," + pod_json(kNamed))), "more than 10000 pods");
}

TEST(PodChange, EachKind) {
  const auto change = [](const std::string& type, const std::string& object) {
    const auto out =
        parse_pod_change(fmt::format(R"({{"type":"{}","object":{}}})", type, object), kOurPrefix);
    EXPECT_TRUE(out.ok()) << (out.ok() ? "" : out.error().message);
    return out.ok() ? *out : PodChange{};
  };
  for (const char* type : {"ADDED", "MODIFIED"}) {
    const PodChange out = change(type, pod_json(kNamed + R"(,"resourceVersion":"78")"));
    EXPECT_EQ(out.kind, PodChange::Kind::present);
    EXPECT_EQ(out.pod.uid, "u-1");
    EXPECT_EQ(out.version, "78");
  }
  EXPECT_EQ(change("DELETED", pod_json(kNamed)).kind, PodChange::Kind::deleted);
  const PodChange mark = change("BOOKMARK", R"({"metadata":{"resourceVersion":"79"}})");
  EXPECT_EQ(mark.kind, PodChange::Kind::bookmark);
  EXPECT_EQ(mark.version, "79");
  const PodChange gone =
      change("ERROR", R"({"kind":"Status","code":410,"message":"too old\n","metadata":{}})");
  EXPECT_EQ(gone.kind, PodChange::Kind::failed);
  EXPECT_FALSE(parse_pod_change(R"({"type":"NEW","object":{}})", kOurPrefix).ok());
  EXPECT_FALSE(parse_pod_change(R"({"type":"ADDED"})", kOurPrefix).ok());
  EXPECT_FALSE(
      parse_pod_change(R"({"type":"ADDED","object":[)" + pod_json(kNamed) + "]}", kOurPrefix).ok());
}

// --- protobuf ------------------------------------------------------------------------------------

// As protoc --encode writes the same message.
TEST(PodListProtobuf, IsAsProtocEncodesIt) {
  const NodePod pod{.name = "a",
                    .name_space = "lab",
                    .uid = "u-1",
                    .node = "n1",
                    .phase = "Running",
                    .deleted_s = 1796013842,
                    .annotations = {{"derate.dev/delta", "0.1"}}};
  std::string hex;
  for (const char byte : encode_listed_pod(pod))
    hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  EXPECT_EQ(hex,
            "0a410a2e0a01611a036c61622a03752d314a060892feb3d80662170a106465726174652e6465762f64656c"
            "74611203302e31120452026e311a090a0752756e6e696e67");
}

std::string last_text(const std::vector<std::string_view>& texts) {
  return texts.empty() ? "" : std::string(texts.back());
}

// Reads what encode_listed_pod() has written, but for the time, of which it reads the first byte.
NodePod decoded_pod(std::string_view message) {
  const auto pod = *fields_of(message, 3);
  const auto metadata = *fields_of(pod[1].back(), 12);
  NodePod out{.name = last_text(metadata[1]),
              .name_space = last_text(metadata[3]),
              .uid = last_text(metadata[5]),
              .node = last_text((*fields_of(pod[2].back(), 10))[10]),
              .phase = last_text((*fields_of(pod[3].back(), 1))[1])};
  if (!metadata[9].empty())
    out.deleted_s = static_cast<unsigned char>(metadata[9].back().at(1)) & 0x7f;
  for (const std::string_view entry : metadata[12]) {
    const auto fields = *fields_of(entry, 2);
    out.annotations[last_text(fields[1])] = last_text(fields[2]);
  }
  return out;
}

NodePod any_pod() {
  const auto text = [](const char* letters, int most) {
    const std::string from = letters;
    return *rc::gen::container<std::string>(static_cast<std::size_t>(*rc::gen::inRange(1, most)),
                                            rc::gen::elementOf(from));
  };
  NodePod out{.name = text("abc-.", 253),
              .name_space = text("xyz", 63),
              .uid = text("0123456789abcdef-", 64),
              .node = text("node1.", 253),
              .phase = text("RunigPed", 10)};
  if (*rc::gen::arbitrary<bool>()) out.deleted_s = *rc::gen::inRange(0, 128);
  for (int i = *rc::gen::inRange(0, 9); i > 0; --i)
    out.annotations[kOurPrefix + "/" + text("abcd", 20)] =
        *rc::gen::element(text("0123.", 4), text(" ", 4096), std::string());
  return out;
}

Json json_of(const NodePod& pod) {
  Json metadata{{"annotations", Json::object()}, {"namespace", pod.name_space}};
  metadata["annotations"]["other/key"] = "x";
  for (const auto& [key, value] : pod.annotations) metadata["annotations"][key] = value;
  metadata["name"] = pod.name;
  metadata["uid"] = pod.uid;
  if (pod.deleted_s)
    metadata["deletionTimestamp"] =
        fmt::format("1970-01-01T00:{:02}:{:02}Z", *pod.deleted_s / 60, *pod.deleted_s % 60);
  return {{"status", {{"phase", pod.phase}}},
          {"metadata", metadata},
          {"spec", {{"nodeName", pod.node}, {"containers", Json::array({{{"name", "c"}}})}}}};
}

// From the API server to the reader of the Pods API: nothing is lost, added or mixed up.
RC_GTEST_PROP(PodListProp, PodsComeThroughAsTheyAre, ()) {
  std::vector<NodePod> pods;
  Json items = Json::array();
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    pods.push_back(any_pod());
    items.push_back(json_of(pods.back()));
  }
  const Json list{{"kind", "PodList"}, {"items", items}, {"metadata", {{"resourceVersion", "5"}}}};
  const auto parsed = parse_pod_list(json_text(list, *rc::gen::element(-1, 2)), kOurPrefix);
  RC_ASSERT(parsed.ok());
  RC_ASSERT(parsed->pods == pods);
  std::string message;
  for (const NodePod& pod : parsed->pods) message += encode_listed_pod(pod);
  const auto entries = *fields_of(message, 1);
  RC_ASSERT(entries[1].size() == pods.size());
  for (std::size_t i = 0; i < pods.size(); ++i) RC_ASSERT(decoded_pod(entries[1][i]) == pods[i]);
}

// A text that was cut or changed is an error or a list, never a crash.
RC_GTEST_PROP(PodListProp, DamageIsNoCrash, ()) {
  std::string json = list_json(json_text(json_of(any_pod())));
  const auto at = *rc::gen::inRange<std::size_t>(0, json.size());
  if (*rc::gen::arbitrary<bool>())
    json.resize(at);
  else
    json[at] = *rc::gen::arbitrary<char>();
  const auto parsed = parse_pod_list(json, kOurPrefix);
  RC_ASSERT(parsed.ok() || parsed.error().code == Errc::bad_data);
}

}  // namespace
}  // namespace derate
