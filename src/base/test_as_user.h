// What another user's process gets to see, for tests that root runs: one run tries both what only
// root may do and what others may not.
#pragma once

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/unique_fd.h"

namespace derate {

// Who is not root and owns nothing.
constexpr uid_t kNobody = 65534;

// What `does` tells in a process of that user, of no groups but `groups` and its own; "setuid
// failed" where this is neither root nor that user. A failed assertion in there does not reach the
// test: what is expected has to be in the text. Its exit handlers do not run.
inline std::string as_user(uid_t user, const std::function<std::string()>& does,
                           const std::vector<gid_t>& groups = {}) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    const bool is_he = user == ::geteuid() || (::setgroups(groups.size(), groups.data()) == 0 &&
                                               ::setgid(user) == 0 && ::setuid(user) == 0);
    const std::string text = is_he ? does() : "setuid failed";
    (void)!::write(write_end.get(), text.data(), text.size());
    ::_exit(0);
  }
  write_end = UniqueFd();
  std::string out;
  char buffer[4096];
  for (ssize_t size; (size = ::read(read_end.get(), buffer, sizeof buffer)) > 0;)
    out.append(buffer, static_cast<std::size_t>(size));
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) out += " (did not end well)";
  return out;
}

// The same by somebody who is not root: who runs the test, or nobody in root's place.
inline std::string as_who_is_not_root(const std::function<std::string()>& does) {
  return as_user(::geteuid() == 0 ? kNobody : ::geteuid(), does);
}

}  // namespace derate
