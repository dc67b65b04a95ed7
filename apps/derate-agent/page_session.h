// The session of the page of a derate-agent that a user has started for it: a code in the address,
// good once, gives one browser the token of the session.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace derate::agent {

class PageSession {
 public:
  // Errors: io.
  static Result<PageSession> create();

  // The code of the address. It goes to the terminal and to a file that only the user can read,
  // never into an argument, which others may read. The first browser that sends it gets the page;
  // later ones are refused.
  const std::string& code() const { return code_; }
  // The token of the session for the first who brings the code; empty for all else.
  std::optional<std::string> exchange(std::string_view code);
  // Whether a field Authorization has that token.
  bool admits(std::string_view authorization) const;

 private:
  PageSession(std::string code, std::string token)
      : code_(std::move(code)), token_(std::move(token)) {}
  std::string code_, token_;
  bool exchanged_ = false;
};

}  // namespace derate::agent
