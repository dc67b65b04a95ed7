#include "page_session.h"

#include <utility>

#include "base/secret.h"

namespace derate::agent {

Result<PageSession> PageSession::create() {
  std::string code = TRY(random_secret());
  return PageSession(std::move(code), TRY(random_secret()));
}

std::optional<std::string> PageSession::exchange(std::string_view code) {
  if (exchanged_ || !is_same_secret(code_, code)) return std::nullopt;
  exchanged_ = true;
  return token_;
}

bool PageSession::admits(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  return exchanged_ && authorization.starts_with(kScheme) &&
         is_same_secret(token_, authorization.substr(kScheme.size()));
}

}  // namespace derate::agent
