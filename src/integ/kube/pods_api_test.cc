#include "integ/kube/pods_api.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace derate {
namespace {

using ReadPods = std::vector<ApiPod>;

std::string number_bytes(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(0x80 | (value & 0x7f));
  return out += static_cast<char>(value);
}

std::string field(std::uint64_t number, const std::string& bytes) {
  return number_bytes(number << 3 | 2) + number_bytes(bytes.size()) + bytes;
}

std::string annotation(const std::string& key, const std::string& value) {
  return field(12, field(1, key) + field(2, value));
}

// One of ListPodsResponse's pods.
std::string pod_bytes(const ApiPod& pod, const std::string& more_metadata = "") {
  std::string metadata = field(1, pod.name.pod) + field(3, pod.name.name_space) +
                         field(4, "/api/v1/self") + field(5, pod.uid);
  for (const auto& [key, value] : pod.annotations)
    metadata += annotation("derate.dev/" + key, value);
  return field(1, field(1, metadata + more_metadata) + field(2, std::string(300, '\0')) +
                      field(3, field(1, pod.finished ? "Failed" : "Running") + field(6, "x")));
}

Result<ReadPods> read(const std::string& message, std::size_t piece = 1 << 20) {
  PodsReader reader("derate.dev");
  for (std::size_t at = 0; at < message.size(); at += piece)
    if (auto taken = reader.take(std::string_view(message).substr(at, piece)); !taken.ok())
      return std::move(taken).error();
  return std::move(reader).finish();
}

std::string any_word() {
  return *rc::gen::nonEmpty(rc::gen::resize(
      12, rc::gen::container<std::string>(rc::gen::element('a', 'b', '7', '-', '.'))));
}

ApiPod any_api_pod() {
  ApiPod out{.name = {any_word(), any_word()},
             .uid = any_word(),
             .finished = *rc::gen::arbitrary<bool>(),
             .annotations = {}};
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i)
    out.annotations.emplace_back(any_word(),
                                 *rc::gen::resize(30, rc::gen::arbitrary<std::string>()));
  return out;
}

// However the answer is cut into pieces.
RC_GTEST_PROP(PodsApi, WhatWasWrittenIsRead, ()) {
  const auto pods = *rc::gen::resize(5, rc::gen::container<ReadPods>(rc::gen::exec(any_api_pod)));
  std::string message;
  for (const ApiPod& pod : pods) message += pod_bytes(pod, annotation("other.dev/delta", "0.3"));
  const auto back = read(message, *rc::gen::inRange<std::size_t>(1, 600));
  RC_ASSERT(back.ok());
  RC_ASSERT(*back == pods);
}

// A cut answer is no shorter list of pods.
RC_GTEST_PROP(PodsApi, ACutAnswerIsRefused, ()) {
  const std::string message = pod_bytes(any_api_pod()) + pod_bytes(any_api_pod());
  const std::size_t first = pod_bytes(any_api_pod()).size();
  const auto size = *rc::gen::inRange<std::size_t>(1, message.size());
  const auto back = read(message.substr(0, size), *rc::gen::inRange<std::size_t>(1, first));
  RC_ASSERT(!back.ok() || back->size() == 1);
  if (back.ok()) RC_ASSERT(pod_bytes((*back)[0]).size() == size);
}

RC_GTEST_PROP(PodsApi, AnyBytesAreReadOrRefused, (const std::string& bytes)) {
  (void)read(bytes, 7).ok();
  (void)read(field(1, bytes), 3).ok();
  (void)read(field(1, field(1, bytes))).ok();
}

TEST(PodsApi, AKeyNeedsTheWholePrefixAndItsSlash) {
  const ApiPod pod{.name = {"lab", "a"}, .uid = "u", .finished = false, .annotations = {}};
  const auto back =
      read(pod_bytes(pod, annotation("derate.dev", "1") + annotation("derate.devx/delta", "0.1") +
                              annotation("my.derate.dev/delta", "0.1")));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, ReadPods{pod});
}

TEST(PodsApi, AHugeValueIsCutToOneThatDoesNotParse) {
  const ApiPod pod{.name = {"lab", "a"},
                   .uid = "u",
                   .finished = false,
                   .annotations = {{"delta", std::string(256 << 10, '0')}}};
  const auto back = read(pod_bytes(pod));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ((*back)[0].annotations[0].second.size(), PodsReader::kLongestValue);
  EXPECT_FALSE(parse_pod_wish((*back)[0].annotations).ok());
}

TEST(PodsApi, NamesThatKubernetesDoesNotAllowAreRefused) {
  for (const ApiPod& pod :
       {ApiPod{{"lab", ""}, "u", false, {}}, ApiPod{{"", "a"}, "u", false, {}},
        ApiPod{{"lab", "a"}, "", false, {}}, ApiPod{{"lab", "a\n"}, "u", false, {}},
        ApiPod{{"lab", "a"}, std::string(65, 'u'), false, {}}}) {
    const auto back = read(pod_bytes(pod));
    ASSERT_FALSE(back.ok());
    EXPECT_TRUE(back.error().message.starts_with("answer of the Pods API: "))
        << back.error().message;
  }
  EXPECT_FALSE(read(field(1, "")).ok()) << "a pod without metadata";
}

TEST(PodsApi, APodBeyondTheLimitIsRefusedBeforeItIsHeld) {
  PodsReader reader("derate.dev");
  const std::string begin = number_bytes(1 << 3 | 2) + number_bytes(std::uint64_t{1} << 40);
  ASSERT_TRUE(reader.take(begin).ok());
  const std::string piece(1 << 20, 'x');
  int taken = 0;
  while (reader.take(piece).ok()) ASSERT_LT(++taken, 5);
}

TEST(PodsApi, ThereAreOnlySoManyPods) {
  const std::string one =
      pod_bytes({.name = {"lab", "a"}, .uid = "u", .finished = false, .annotations = {}});
  PodsReader reader("derate.dev");
  std::size_t taken = 0;
  while (reader.take(one).ok()) ASSERT_LE(++taken, PodsReader::kMostPods);
  EXPECT_EQ(taken, PodsReader::kMostPods);
}

}  // namespace
}  // namespace derate
