// Readers of this machine for TenantResolver: files of /proc/PID, names of users, names of pods
// from the kubelet's log folders; and the check for the first PID namespace.
#include "integ/tenant_resolver.h"

#include <dirent.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "base/text.h"
#include "integ/proc_files.h"

namespace derate {
namespace {

std::optional<std::string> user_name(std::uint32_t uid) {
  constexpr std::size_t kMost = 1 << 20;
  std::vector<char> text(1024);
  passwd entry{};
  passwd* found = nullptr;
  for (;;) {
    const int wrong = ::getpwuid_r(uid, &entry, text.data(), text.size(), &found);
    if (wrong == ERANGE && text.size() < kMost) {
      text.resize(text.size() * 2);
    } else if (wrong != EINTR) {
      break;
    }
  }
  if (found == nullptr) return std::nullopt;
  return std::string(found->pw_name);
}

// Its log folder has the name, NAMESPACE_NAME_UID; neither namespaces nor names have a "_".
// Source: Kubernetes, BuildPodLogsDirectory in pkg/kubelet/kuberuntime/helpers.go.
std::optional<PodName> pod_name(const std::string& pod_logs, const std::string& uid) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(pod_logs.c_str()), &::closedir);
  if (!folder) return std::nullopt;
  while (const dirent* entry = ::readdir(folder.get())) {
    const auto parts = split(entry->d_name, '_');
    if (parts.size() == 3 && parts[2] == uid && !parts[0].empty() && !parts[1].empty())
      return PodName{std::string(parts[0]), std::string(parts[1])};
  }
  return std::nullopt;
}

}  // namespace

TenantReaders machine_readers(std::string proc, std::string pod_logs) {
  TenantReaders out;
  out.proc = [proc = std::move(proc)](std::int64_t pid, std::string_view file) {
    return read_proc_file(proc, pid, file);
  };
  out.user_name = user_name;
  out.pod_name = [pod_logs = std::move(pod_logs)](const std::string& uid) {
    return pod_name(pod_logs, uid);
  };
  return out;
}

std::optional<bool> in_first_pid_namespace() {
  // The kernel's fixed inode of it: PROC_PID_INIT_INO in include/linux/proc_ns.h.
  constexpr std::string_view kFirst = "pid:[4026531836]";
  char text[64];
  const ssize_t size = ::readlink("/proc/self/ns/pid", text, sizeof text);
  if (size <= 0) return std::nullopt;
  return std::string_view(text, static_cast<std::size_t>(size)) == kFirst;
}

}  // namespace derate
