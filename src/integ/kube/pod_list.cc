#include "integ/kube/pod_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "base/json.h"
#include "base/number.h"
#include "base/printing.h"

namespace derate {
namespace {

// A pod nests some 12 levels (managedFields). A key is 253 bytes of prefix, "/" and 63 of a name.
constexpr std::size_t kMostLevels = 128, kLongestKey = 253 + 1 + 63;
constexpr std::size_t kLongestPodName = 253, kLongestPodUid = 64, kLongestVersion = 128;
constexpr std::size_t kLongestPhase = 32;

// The place of a value in the document.
enum class PodPlace : std::uint8_t {
  other,
  list,
  list_metadata,
  items,
  change,
  pod,
  metadata,
  annotations,
  spec,
  status
};

PodPlace place_below(PodPlace at, std::string_view key) {
  if (at == PodPlace::list && key == "metadata") return PodPlace::list_metadata;
  if (at == PodPlace::list && key == "items") return PodPlace::items;
  if (at == PodPlace::items) return PodPlace::pod;
  if (at == PodPlace::change && key == "object") return PodPlace::pod;
  if (at == PodPlace::pod && key == "metadata") return PodPlace::metadata;
  if (at == PodPlace::pod && key == "spec") return PodPlace::spec;
  if (at == PodPlace::pod && key == "status") return PodPlace::status;
  if (at == PodPlace::metadata && key == "annotations") return PodPlace::annotations;
  return PodPlace::other;
}

Error no_pods(std::string what) { return {Errc::bad_data, std::move(what)}; }

bool is_object_name(std::string_view text, std::size_t longest) {
  return !text.empty() && text.size() <= longest &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
         });
}

// "2026-11-30T04:44:02Z", the form in which the API server writes times. Empty: it is none.
std::optional<std::int64_t> seconds_of_time(std::string_view text) {
  const auto part = [&](std::size_t at, std::size_t size) {
    return parse_number<unsigned>(text.substr(at, size));
  };
  constexpr std::string_view kForm = "0000-00-00T00:00:00Z";
  if (text.size() != kForm.size()) return std::nullopt;
  for (std::size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] != '0' && text[i] != kForm[i]) return std::nullopt;
  const auto year = part(0, 4), month = part(5, 2), day = part(8, 2);
  const auto hour = part(11, 2), minute = part(14, 2), second = part(17, 2);
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                         std::chrono::month(*month), std::chrono::day(*day)};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return days * 86400 + *hour * 3600 + *minute * 60 + *second;
}

// At the end of a character of UTF-8. With the dots it is no number, policy or boolean.
std::string cut_value(const std::string& value) {
  if (value.size() <= NodePod::kLongestValue) return value;
  std::size_t end = NodePod::kLongestValue;
  while (end > 0 && (static_cast<unsigned char>(value[end]) & 0xc0) == 0x80) --end;
  return value.substr(0, end) + "...";
}

// Reads a PodList or an event of a watch as its tokens come: of a list of 64 MiB it keeps what is
// listed above, and no document is built, whose objects would cost the square of their keys.
class PodTokens : public Json::json_sax_t {
 public:
  PodTokens(PodPlace root, const std::string& prefix) : root_(root), key_begin_(prefix + "/") {}

  std::string wrong;  // empty: nothing
  // Of the document's object.
  std::string kind, type, version, more;
  bool has_items = false;
  std::vector<NodePod> pods;
  // Of the last pod, or what stands in its place.
  struct Object {
    NodePod pod;
    std::string version;
    bool has_too_many_keys = false;
  };
  Object object;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(std::size_t, const std::string&, const Json::exception&) override {
    return false;
  }

  bool key(string_t& name) override {
    key_ = name.size() <= kLongestKey ? name : std::string();
    return true;
  }
  bool start_object(std::size_t) override {
    const PodPlace place = places_.empty() ? root_ : place_below(places_.back(), key_);
    if (place == PodPlace::pod) object = {};
    return open(place == PodPlace::items ? PodPlace::other : place);
  }
  bool start_array(std::size_t) override {
    const bool items = places_.size() == 1 && place_below(places_[0], key_) == PodPlace::items;
    has_items = has_items || items;
    return open(items ? PodPlace::items : PodPlace::other);
  }
  bool end_object() override {
    const PodPlace ended = places_.back();
    places_.pop_back();
    if (ended == PodPlace::pod && root_ == PodPlace::list) return add_pod();
    return true;
  }
  bool end_array() override {
    places_.pop_back();
    return true;
  }
  bool string(string_t& value) override {
    take(places_.empty() ? PodPlace::other : places_.back(), value);
    return true;
  }

  // The last pod; empty: `wrong` says what is wrong with it.
  std::optional<NodePod> take_pod() {
    NodePod out = std::move(object.pod);
    if (!is_object_name(out.name, kLongestPodName) ||
        !is_object_name(out.name_space, kLongestPodName))
      wrong = "a pod whose name or namespace Kubernetes does not allow";
    else if (!is_object_name(out.uid, kLongestPodUid))
      wrong = fmt::format("pod {}/{}: its UID is not valid", out.name_space, out.name);
    else if (out.node.size() > kLongestPodName || out.phase.size() > kLongestPhase)
      wrong = fmt::format("pod {}/{}: its node or phase is not valid", out.name_space, out.name);
    if (!wrong.empty()) return std::nullopt;
    if (object.has_too_many_keys)
      for (auto& [name, value] : out.annotations) value.clear();
    return out;
  }

 private:
  bool open(PodPlace place) {
    places_.push_back(place);
    if (places_.size() <= kMostLevels) return true;
    wrong = fmt::format("more than {} levels", kMostLevels);
    return false;
  }

  bool add_pod() {
    if (pods.size() >= kMostListedPods) {
      wrong = fmt::format("more than {} pods", kMostListedPods);
      return false;
    }
    auto pod = take_pod();
    if (!pod) return false;
    pods.push_back(*std::move(pod));
    return true;
  }

  void take(PodPlace place, const std::string& value) {
    switch (place) {
      case PodPlace::list:
        if (key_ == "kind") kind = value;
        break;
      case PodPlace::list_metadata:
        if (key_ == "resourceVersion") version = value;
        if (key_ == "continue") more = value;
        break;
      case PodPlace::change:
        if (key_ == "type") type = value;
        break;
      case PodPlace::metadata:
        take_metadata(value);
        break;
      case PodPlace::annotations:
        take_annotation(value);
        break;
      case PodPlace::spec:
        if (key_ == "nodeName") object.pod.node = value;
        break;
      case PodPlace::status:
        if (key_ == "phase") object.pod.phase = value;
        break;
      case PodPlace::pod:
      case PodPlace::items:
      case PodPlace::other:
        break;
    }
  }

  void take_metadata(const std::string& value) {
    if (key_ == "name") object.pod.name = value;
    if (key_ == "namespace") object.pod.name_space = value;
    if (key_ == "uid") object.pod.uid = value;
    if (key_ == "resourceVersion") object.version = value;
    if (key_ == "deletionTimestamp") object.pod.deleted_s = seconds_of_time(value).value_or(0);
  }

  void take_annotation(const std::string& value) {
    if (!key_.starts_with(key_begin_)) return;
    auto& kept = object.pod.annotations;
    kept[key_] = cut_value(value);
    if (kept.size() <= NodePod::kMostKeys) return;
    kept.erase(std::prev(kept.end()));
    object.has_too_many_keys = true;
  }

  const PodPlace root_;
  const std::string key_begin_;
  std::string key_;               // the last of the innermost object
  std::vector<PodPlace> places_;  // of the objects and arrays that are open
};

Result<void> read_tokens(std::string_view json, PodTokens& tokens) {
  if (json.size() > kMostPodListBytes)
    return no_pods(fmt::format("more than {} bytes", kMostPodListBytes));
  if (Json::sax_parse(json, &tokens)) return {};
  return no_pods(tokens.wrong.empty() ? "no JSON" : tokens.wrong);
}

Result<std::string> checked_version(const std::string& version) {
  if (version.size() <= kLongestVersion) return version;
  return no_pods(fmt::format("a resourceVersion of more than {} bytes", kLongestVersion));
}

std::optional<PodChange::Kind> kind_of_change(std::string_view type) {
  if (type == "ADDED" || type == "MODIFIED") return PodChange::Kind::present;
  if (type == "DELETED") return PodChange::Kind::deleted;
  if (type == "BOOKMARK") return PodChange::Kind::bookmark;
  if (type == "ERROR") return PodChange::Kind::failed;
  return std::nullopt;
}

// --- protobuf (protobuf.dev/programming-guides/encoding) -----------------------------------------

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  out += static_cast<char>(value);
}

// A text or a message, also an empty one.
void put_bytes(std::string& out, unsigned field, std::string_view bytes) {
  put_varint(out, field << 3 | 2);
  put_varint(out, bytes.size());
  out += bytes;
}

void put_text(std::string& out, unsigned field, std::string_view text) {
  if (!text.empty()) put_bytes(out, field, text);
}

// ObjectMeta: 1 name, 3 namespace, 5 uid, 9 deletionTimestamp (1 seconds), 12 annotations (1 key,
// 2 value).
std::string encode_metadata(const NodePod& pod) {
  std::string out;
  put_text(out, 1, pod.name);
  put_text(out, 3, pod.name_space);
  put_text(out, 5, pod.uid);
  if (pod.deleted_s) {
    std::string time;
    put_varint(time, 1 << 3 | 0);
    put_varint(time, static_cast<std::uint64_t>(*pod.deleted_s));
    put_bytes(out, 9, time);
  }
  for (const auto& [key, value] : pod.annotations) {
    std::string entry;
    put_bytes(entry, 1, key);
    put_bytes(entry, 2, value);
    put_bytes(out, 12, entry);
  }
  return out;
}

}  // namespace

Result<NodePods> parse_pod_list(std::string_view json, const std::string& prefix) {
  PodTokens tokens(PodPlace::list, prefix);
  TRY(read_tokens(json, tokens));
  if (tokens.kind != "PodList" && tokens.kind != "PartialObjectMetadataList")
    return no_pods(fmt::format("kind '{}', allowed are PodList and PartialObjectMetadataList",
                               log_text(tokens.kind, 40)));
  if (!tokens.has_items) return no_pods("no items");
  if (!tokens.more.empty()) return no_pods("not the whole list");
  NodePods out;
  out.version = TRY(checked_version(tokens.version));
  out.pods = std::move(tokens.pods);
  return out;
}

Result<PodChange> parse_pod_change(std::string_view json, const std::string& prefix) {
  PodTokens tokens(PodPlace::change, prefix);
  TRY(read_tokens(json, tokens));
  const auto kind = kind_of_change(tokens.type);
  if (!kind)
    return no_pods(
        fmt::format("type '{}', allowed are ADDED, MODIFIED, DELETED, BOOKMARK and ERROR",
                    log_text(tokens.type, 40)));
  PodChange out;
  out.kind = *kind;
  out.version = TRY(checked_version(tokens.object.version));
  if (*kind == PodChange::Kind::bookmark || *kind == PodChange::Kind::failed) return out;
  auto pod = tokens.take_pod();
  if (!pod) return no_pods(tokens.wrong);
  out.pod = *std::move(pod);
  return out;
}

// Numbers of fields: k8s.io/api/core/v1/generated.proto and
// k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto. ListPodsResponse: 1 pods; Pod: 1 metadata,
// 2 spec, 3 status; PodSpec: 10 nodeName; PodStatus: 1 phase.
std::string encode_listed_pod(const NodePod& pod) {
  std::string spec, status, message, out;
  put_text(spec, 10, pod.node);
  put_text(status, 1, pod.phase);
  put_bytes(message, 1, encode_metadata(pod));
  put_bytes(message, 2, spec);
  put_bytes(message, 3, status);
  put_bytes(out, 1, message);
  return out;
}

}  // namespace derate
