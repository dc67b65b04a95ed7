#include "leading_page.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

#include "base/safe_path.h"
#include "base/text.h"

namespace derate::agent {

Result<LeadingPage> LeadingPage::create(const std::string& folder, const std::string& address) {
  constexpr ::mode_t kOfOthers = 077, kOwn = 0600;
  TRY(make_own_folder(folder, kOfOthers));
  // If a process was killed and left its file, the next process with its PID replaces the file.
  LeadingPage out(fmt::format("{}/derate-ui-{}.html", folder, ::getpid()));
  const std::string text = fmt::format(
      "<!doctype html>\n<meta charset=\"utf-8\">\n<meta name=\"referrer\" "
      "content=\"no-referrer\">\n"
      "<meta http-equiv=\"refresh\" content=\"0; url={0}\">\n<title>Derate</title>\n"
      "<a href=\"{0}\">Derate</a>\n",
      address);
  TRY(write_file_atomically(out.path_, text, Durable::no, kOwn));
  return out;
}

LeadingPage::LeadingPage(LeadingPage&& other) noexcept
    : path_(std::exchange(other.path_, std::string())) {}

void LeadingPage::remove() {
  const std::string path = std::exchange(path_, std::string());
  if (!path.empty()) ::unlink(path.c_str());
}

std::string own_runtime_folder() {
  const char* given = ::secure_getenv("XDG_RUNTIME_DIR");
  return given != nullptr && *given == '/' ? given : own_temporary_folder();
}

}  // namespace derate::agent
