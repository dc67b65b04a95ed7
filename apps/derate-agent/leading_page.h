// A page on disk that leads a browser to an address with a secret in it. The browser's argument is
// the file's name, as every user can read a process's arguments.
#pragma once

#include <string>

#include "base/result.h"

namespace derate::agent {

class LeadingPage {
 public:
  // `folder` is made if it is missing. It must belong to this user, and other users may have no
  // rights on it. Errors: no_permission, io.
  static Result<LeadingPage> create(const std::string& folder, const std::string& address);
  LeadingPage(LeadingPage&& other) noexcept;
  LeadingPage& operator=(LeadingPage&&) = delete;
  ~LeadingPage() { remove(); }

  const std::string& path() const { return path_; }
  // To be called when a browser has loaded the address.
  void remove();

 private:
  explicit LeadingPage(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: it is removed
};

// The folder for files of this user alone: $XDG_RUNTIME_DIR, else "derate-UID" in $TMPDIR or /tmp.
std::string own_runtime_folder();

}  // namespace derate::agent
