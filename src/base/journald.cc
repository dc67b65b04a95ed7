#include "base/journald.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

namespace derate {
namespace {

int priority_of(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return LOG_DEBUG;
    case LogLevel::info:
      return LOG_INFO;
    case LogLevel::warning:
      return LOG_WARNING;
    case LogLevel::error:
      return LOG_ERR;
  }
  return LOG_ERR;
}

// The journal's names of fields are upper case.
std::string field_name(std::string_view name) {
  std::string out = "DERATE_";
  for (const char c : name) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  return out;
}

}  // namespace

bool stderr_is_journald() {
  const char* const stream = ::secure_getenv("JOURNAL_STREAM");
  struct stat file {};
  return stream != nullptr && ::fstat(STDERR_FILENO, &file) == 0 &&
         fmt::format("{}:{}", file.st_dev, file.st_ino) == stream;
}

JournaldWriter journald_writer(std::string program, JournaldSend send) {
  return [program = std::move(program), send](const LogRecord& record) {
    std::vector<std::string> texts = {
        "MESSAGE=" + record.text, fmt::format("PRIORITY={}", priority_of(record.level)),
        "SYSLOG_IDENTIFIER=" + program, fmt::format("CODE_FILE={}", record.place.file),
        fmt::format("CODE_LINE={}", record.place.line)};
    for (const LogField& field : record.fields)
      texts.push_back(field_name(field.name) + "=" + field.value);
    std::vector<iovec> parts;
    for (std::string& text : texts) parts.push_back({text.data(), text.size()});
    return send(parts.data(), static_cast<int>(parts.size())) >= 0;
  };
}

}  // namespace derate
