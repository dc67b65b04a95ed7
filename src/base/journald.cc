#include "base/journald.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <syslog.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "base/unix_address.h"

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

JournaldSend journald_socket(const std::string& path) {
  auto socket =
      std::make_shared<UniqueFd>(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return [socket, path](const iovec* parts, int count) {
    const auto address = address_of(path);
    if (!address.ok()) return -1;
    std::vector<iovec> lines;
    static char end[] = "\n";
    for (int i = 0; i < count; ++i) lines.insert(lines.end(), {parts[i], {end, 1}});
    sockaddr_un to = *address;
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = lines.data();
    message.msg_iovlen = lines.size();
    return ::sendmsg(socket->get(), &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
  };
}

JournaldWriter journald_writer(std::string program, JournaldSend send) {
  return [program = std::move(program), send = std::move(send)](const LogRecord& record) {
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
