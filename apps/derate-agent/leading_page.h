// A page on disk that leads a browser on to an address with a secret in it. A browser is given the
// file's name: everybody may read the arguments of its process.
#pragma once

#include <string>

#include "base/result.h"

namespace derate::agent {

class LeadingPage {
 public:
  // In `folder`, which is made where there is none, has to be the user's own, and lets nobody else
  // look in. Errors: no_permission, io.
  static Result<LeadingPage> create(const std::string& folder, const std::string& address);
  LeadingPage(LeadingPage&& other) noexcept;
  LeadingPage& operator=(LeadingPage&&) = delete;
  ~LeadingPage() { remove(); }

  const std::string& path() const { return path_; }
  // It has led somebody on.
  void remove();

 private:
  explicit LeadingPage(std::string path) : path_(std::move(path)) {}
  std::string path_;  // empty: it is removed
};

// Where a user's programs keep what is theirs alone: $XDG_RUNTIME_DIR, else "derate-UID" in $TMPDIR
// or /tmp.
std::string own_runtime_folder();

}  // namespace derate::agent
