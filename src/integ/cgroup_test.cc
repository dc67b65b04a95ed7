#include "integ/cgroup.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace derate {
namespace {

const std::string kId = std::string(30, 'a') + "0123456789" + std::string(24, 'f');
const std::string kOther = std::string(64, 'b');
const std::string kUid = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9";
const std::string kStatic = "0123456789abcdef0123456789abcdef";

std::string with(std::string text, char from, char to) {
  std::replace(text.begin(), text.end(), from, to);
  return text;
}

rc::Gen<std::string> hex(std::size_t digits) {
  return rc::gen::container<std::string>(digits,
                                         rc::gen::elementOf(std::string("0123456789abcdef")));
}

rc::Gen<std::string> any_pod_uid() {
  return rc::gen::map(rc::gen::pair(hex(32), rc::gen::arbitrary<bool>()),
                      [](const std::pair<std::string, bool>& made) {
                        const std::string& h = made.first;
                        if (made.second) return h;
                        return h.substr(0, 8) + '-' + h.substr(8, 4) + '-' + h.substr(12, 4) + '-' +
                               h.substr(16, 4) + '-' + h.substr(20);
                      });
}

// A path as the kubelet and a runtime make it, with either driver and in every class of service.
std::string pod_path(const std::string& uid, const std::string& id) {
  const auto quality = *rc::gen::element<std::string>("", "burstable", "besteffort");
  const auto runtime = *rc::gen::element<std::string>("cri-containerd", "crio", "docker");
  const std::string cased = with(uid, '-', '_');
  switch (*rc::gen::inRange(0, 4)) {
    case 0:
      return fmt::format("/kubepods{}/pod{}/{}", quality.empty() ? "" : "/" + quality, uid, id);
    case 1: {
      const std::string dash = quality.empty() ? "" : "-" + quality;
      const std::string outer = quality.empty() ? "" : fmt::format("/kubepods-{}.slice", quality);
      return fmt::format("/kubepods.slice{}/kubepods{}-pod{}.slice/{}-{}.scope", outer, dash, cased,
                         runtime, id);
    }
    case 2:  // a cluster in a container, below a root of the kubelet's own
      return fmt::format(
          "/docker/{}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{}.slice/"
          "{}-{}.scope",
          kOther, cased, runtime, id);
    default:
      return fmt::format("/system.slice/containerd.service/kubepods-burstable-pod{}.slice:{}:{}",
                         cased, "cri-containerd", id);
  }
}

std::string job_path(std::uint32_t job, const std::string& step, std::uint32_t uid, bool first) {
  const auto node = *rc::gen::element<std::string>("", "n01");
  if (first)
    return fmt::format("/slurm{}/uid_{}/job_{}/step_{}/task_0", node.empty() ? "" : "_" + node, uid,
                       job, step);
  return fmt::format("/system.slice/{}slurmstepd.scope/job_{}/step_{}/user/task_0",
                     node.empty() ? "" : node + "_", job, step);
}

// Hierarchies as a machine of v1, of v2 or of both has them; only some lines have the path.
std::string file_of(const std::string& path) {
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      return "0::" + path + "\n";
    case 1:
      return "12:pids:/init.scope\n11:memory:" + path + "\n1:name=systemd:/\n";
    default:
      return "4:freezer:/\n3:cpuset,cpu:" + path + "\n0::/system.slice/x.service\n";
  }
}

bool sound(const CgroupLabels& labels) {
  const auto digits = [](const std::string& text) {
    return text.find_first_not_of("0123456789") == std::string::npos;
  };
  const bool id = labels.container.empty() ||
                  (labels.container.size() == 64 &&
                   labels.container.find_first_not_of("0123456789abcdef") == std::string::npos);
  return id && (labels.pod_uid.empty() || (is_pod_uid(labels.pod_uid) && labels.in_kubernetes)) &&
         digits(labels.job) && labels.job.size() <= 10 &&
         (labels.job.empty() ? labels.step.empty() && !labels.uid : labels.in_slurm);
}

RC_GTEST_PROP(CgroupProp, AContainerOfAPodIsFoundInEveryForm, ()) {
  const auto uid = *any_pod_uid();
  const auto id = *hex(64);
  const auto labels = parse_cgroup(file_of(pod_path(uid, id)));
  RC_ASSERT(labels.pod_uid == uid);
  RC_ASSERT(labels.container == id);
  RC_ASSERT((labels.in_kubernetes && !labels.in_slurm));
}

RC_GTEST_PROP(CgroupProp, AJobIsFoundInEveryForm, (std::uint32_t uid)) {
  const auto job = *rc::gen::inRange<std::uint32_t>(1, UINT32_MAX);
  const auto step = *rc::gen::element<std::string>("0", "17", "batch", "extern", "interactive");
  const bool first = *rc::gen::arbitrary<bool>();
  const auto labels = parse_cgroup(file_of(job_path(job, step, uid, first)));
  RC_ASSERT(labels.job == std::to_string(job));
  RC_ASSERT(labels.step == step);
  RC_ASSERT(labels.uid == (first && uid != UINT32_MAX ? std::optional(uid) : std::nullopt));
  RC_ASSERT((labels.in_slurm && !labels.in_kubernetes && labels.container.empty()));
}

// Who owns a group can make any group below it: none of them makes it another's.
RC_GTEST_PROP(CgroupProp, WhatStandsBelowChangesNobody, ()) {
  const auto uid = *any_pod_uid();
  const auto job = *rc::gen::inRange<std::uint32_t>(1, UINT32_MAX);
  const std::string lies =
      *rc::gen::element(pod_path(kUid, kOther), job_path(7, "0", 0, false), "/docker/" + kOther,
                        std::string("/../../job_8/step_1"));
  const auto pod = parse_cgroup("0::" + pod_path(uid, kId) + lies);
  RC_ASSERT(pod.pod_uid == uid);
  RC_ASSERT(pod.container == kId);
  const auto batch =
      parse_cgroup("0::" + job_path(job, "3", 5, *rc::gen::arbitrary<bool>()) + lies);
  RC_ASSERT(batch.job == std::to_string(job));
  RC_ASSERT(batch.step == "3");
}

RC_GTEST_PROP(CgroupProp, AUserCannotBecomeAPodOrAJob, ()) {
  const std::string lies = *rc::gen::element(pod_path(kUid, kId), job_path(7, "0", 0, true));
  const auto labels = parse_cgroup(file_of("/user.slice/user-1000.slice/user@1000.service" + lies));
  RC_ASSERT((labels.pod_uid.empty() && labels.job.empty()));
  RC_ASSERT((!labels.in_kubernetes && !labels.in_slurm));
}

// Pieces of what is looked for, and any bytes between them.
RC_GTEST_PROP(CgroupProp, AnyTextGivesSoundLabels, ()) {
  const auto piece =
      rc::gen::oneOf(rc::gen::arbitrary<std::string>(),
                     rc::gen::element<std::string>("/", ":", "\n", "0::", "1:cpu:/", "kubepods",
                                                   "-pod", "pod", kUid, kId, ".slice", ".scope",
                                                   "docker-", "slurm/", "uid_", "job_", "step_",
                                                   "slurmstepd.scope/", "5", "/..", "user.slice"));
  std::string text;
  for (const std::string& part : *rc::gen::container<std::vector<std::string>>(piece)) text += part;
  RC_ASSERT(sound(parse_cgroup(text)));
  RC_ASSERT(sound(parse_cgroup("0::/" + text)));
  const std::string job = job_in_environment(text);
  RC_ASSERT(job.find_first_not_of("0123456789") == std::string::npos);
}

RC_GTEST_PROP(CgroupProp, TheJobIsFoundInAnyEnvironment, (const std::vector<std::string>& others)) {
  const auto job = *rc::gen::inRange<std::uint32_t>(1, UINT32_MAX);
  std::string text;
  for (const std::string& other : others) text += "X" + other + '\0';
  text += "SLURM_JOB_ID=" + std::to_string(job) + '\0';
  text += "SLURM_JOB_ID=1";  // as getenv(3): the first counts
  RC_ASSERT(job_in_environment(text) == std::to_string(job));
}

struct Example {
  const char* what;
  std::string path;
  CgroupLabels labels;
};

// Forms that the generators above do not make.
const Example kExamples[] = {
    {"docker, v1", "/docker/" + kId, {.container = kId}},
    {"docker, v2", "/system.slice/docker-" + kId + ".scope", {.container = kId}},
    {"docker, rootless",
     "/user.slice/user-1000.slice/user@1000.service/app.slice/docker-" + kId + ".scope",
     {.container = kId}},
    {"podman", "/machine.slice/libpod-" + kId + ".scope/container", {.container = kId}},
    {"podman's keeper", "/machine.slice/libpod-conmon-" + kId + ".scope", {}},
    {"podman, cgroupfs", "/libpod_parent/libpod-" + kId, {.container = kId}},
    {"ECS", "/ecs/0f1e2d3c4b5a69788796a5b4c3d2e1f0/" + kId, {.container = kId}},
    {"a container in a container", "/docker/" + kId + "/docker/" + kOther, {.container = kId}},
    {"a pod without container yet",
     "/kubepods/pod" + kUid,
     {.in_kubernetes = true, .pod_uid = kUid}},
    {"a static pod",
     "/kubepods/burstable/pod" + kStatic + "/" + kId,
     {.container = kId, .in_kubernetes = true, .pod_uid = kStatic}},
    {"from a group namespace of our own",
     "/../../pod" + kUid + "/" + kId,
     {.container = kId, .in_kubernetes = true, .pod_uid = kUid}},
    {"a pod's name outside Kubernetes", "/pod" + kUid + "/x", {}},
    {"Slurm in a pod",
     "/kubepods/pod" + kUid + "/" + kId + "/system.slice/n1_slurmstepd.scope/job_9/step_0",
     {.container = kId,
      .in_kubernetes = true,
      .pod_uid = kUid,
      .in_slurm = true,
      .job = "9",
      .step = "0"}},
    {"Slurm by SLUID", "/system.slice/slurmstepd.scope/s5K1KKYAYG5D00/step_0", {.in_slurm = true}},
    {"Slurm's daemon", "/system.slice/slurmstepd.scope/system", {.in_slurm = true}},
    {"a job without step", "/slurm/uid_0/job_12", {.in_slurm = true, .job = "12", .uid = 0U}},
    {"no job 0", "/slurm/uid_1/job_0", {.in_slurm = true}},
    {"no job of more than 32 bits", "/slurm/uid_1/job_4294967296", {.in_slurm = true}},
    {"a group that is gone",
     "/system.slice/docker-" + kId + ".scope (deleted)",
     {.container = kId}},
    {"a service", "/system.slice/ssh.service", {.unit = "ssh.service"}},
    {"a service that has made groups",
     "/system.slice/vllm.service/a/b.service",
     {.unit = "vllm.service"}},
    {"a unit of a user's",
     "/user.slice/user-1000.slice/user@1000.service/app.slice/vllm.service",
     {}},
    {"the root", "/", {}},
    {"too few digits", "/docker/" + kId.substr(1), {}},
    {"too many digits", "/docker/a" + kId, {}},
};

TEST(Cgroup, Examples) {
  for (const Example& example : kExamples)
    EXPECT_EQ(parse_cgroup("0::" + example.path), example.labels) << example.what;
}

TEST(Cgroup, TheHierarchyThatNamesAPodGoesBeforeOneThatNamesAContainer) {
  const auto labels = parse_cgroup("9:pids:/docker/" + kOther + "\n8:memory:/kubepods/pod" + kUid +
                                   "/" + kId + "\n7:cpu:/slurm/uid_5/job_3\n");
  EXPECT_EQ(labels, (CgroupLabels{kId, true, kUid, true, "3", "", 5}));
}

TEST(Cgroup, APathOfMoreThanTheKernelAllowsSaysNothing) {
  EXPECT_EQ(parse_cgroup("0::/" + std::string(5000, 'x') + "/docker/" + kId), CgroupLabels{});
}

TEST(UserOfCgroup, IsWhoLoggedInOrWhoseJobItIs) {
  const std::pair<const char*, std::optional<std::uint32_t>> cases[] = {
      {"0::/user.slice/user-1000.slice/session-3.scope\n", 1000u},
      {"0::/user.slice/user-1000.slice/user@1000.service/app.slice/docker.service\n", 1000u},
      {"1:name=systemd:/user.slice/user-7.slice\n0::/system.slice/x.service\n", 7u},
      {"4:memory:/slurm/uid_1042/job_5/step_0\n", 1042u},
      {"0::/user.slice/user-0.slice/session-1.scope\n", std::nullopt},  // root's own
      {"0::/user.slice/user-1000\n", std::nullopt},
      {"0::/user.slice/user-01000.slice\n", std::nullopt},
      {"0::/user.slice/user-4294967295.slice\n", std::nullopt},
      {"0::/system.slice/user.slice/user-1000.slice\n", std::nullopt},
      {"0::/system.slice/docker-ID.scope\n", std::nullopt},
      {"0::/../user.slice/user-1000.slice\n", 1000u},
      {"user.slice/user-1000.slice", std::nullopt},
      {"", std::nullopt}};
  for (const auto& [text, uid] : cases) EXPECT_EQ(user_of(text), uid) << text;
}

}  // namespace
}  // namespace derate
