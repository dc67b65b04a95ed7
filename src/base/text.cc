#include "base/text.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>

#include "base/number.h"
#include "base/safe_path.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

constexpr std::string_view kUnfinished = ".tmp";

// Nothing that is read whole is anywhere near it: a device that never ends is.
constexpr std::size_t kLargestFile = std::size_t{256} << 20;

Error file_error(const char* what, const std::string& path, int number) {
  const Errc code = number == ENOENT || number == ENOTDIR                    ? Errc::not_found
                    : number == EACCES || number == EPERM || number == EROFS ? Errc::no_permission
                                                                             : Errc::io;
  return {code, std::string(what) + " '" + path + "': " + std::strerror(number)};
}

Result<void> write_all(int fd, std::string_view content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot write", path, errno);
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::set<std::string> split_names(std::string_view list) {
  std::set<std::string> out;
  for (const std::string_view each : split(list, ','))
    if (const auto name = trim(each); !name.empty()) out.emplace(name);
  return out;
}

bool is_dns_subdomain(std::string_view text) {
  constexpr std::size_t kLongest = 253, kLongestLabel = 63;
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  };
  const auto labels = split(text, '.');
  return text.size() <= kLongest &&
         std::all_of(labels.begin(), labels.end(), [&](std::string_view label) {
           return !label.empty() && label.size() <= kLongestLabel &&
                  is_alphanumeric(label.front()) && is_alphanumeric(label.back()) &&
                  std::all_of(label.begin(), label.end(),
                              [&](char c) { return is_alphanumeric(c) || c == '-'; });
         });
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_number<std::int64_t>(text);
}

std::optional<double> parse_seconds(std::string_view text) {
  struct Unit {
    std::string_view ending;
    double seconds;
  };
  // "ms" before "s", which it ends with.
  constexpr Unit kUnits[] = {{"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}};
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.ending)) continue;
    const auto value = parse_double(text.substr(0, text.size() - unit.ending.size()));
    return value ? std::optional(*value * unit.seconds) : std::nullopt;
  }
  return parse_double(text);
}

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string fixed_text(double value, int digits) {
  std::string out = fmt::format("{:.{}f}", value, digits);
  const bool zero = out.find_first_of("123456789") == std::string::npos;
  return zero && out.starts_with('-') ? out.substr(1) : out;
}

Result<std::string> read_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return file_error("cannot open", path, errno);
  std::string content;
  char buffer[65536];
  while (true) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return file_error("cannot read", path, errno);
    if (n == 0) return content;
    if (content.size() > kLargestFile)
      return Error{Errc::io, "'" + path + "' is larger than 256 MiB"};
    content.append(buffer, static_cast<std::size_t>(n));
  }
}

namespace {

// The rename itself is on disk only once the folder is.
Result<void> flush_folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path();
  const UniqueFd file(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid() || ::fsync(file.get()) != 0)
    return file_error("cannot flush the folder of", path, errno);
  return {};
}

// "PATH.PID-NUMBER.tmp": no name that another could have taken before.
std::string unfinished_name(const std::string& path) {
  std::uint64_t number = 0;
  // Without enough randomness yet, at boot, the file is still never shared: O_EXCL.
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) number = 0;
  char text[64];
  std::snprintf(text, sizeof text, ".%d-%016llx", static_cast<int>(::getpid()),
                static_cast<unsigned long long>(number));
  return path + text + std::string(kUnfinished);
}

}  // namespace

std::optional<int> writer_of(std::string_view file_name) {
  if (!file_name.ends_with(kUnfinished)) return std::nullopt;
  file_name.remove_suffix(kUnfinished.size());
  const auto dot = file_name.rfind('.');
  if (dot == file_name.npos) return std::nullopt;
  const auto pid = parse_integer(split(file_name.substr(dot + 1), '-').front());
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (!pid || *pid <= 0 || *pid > kMost) return std::nullopt;
  return static_cast<int>(*pid);
}

Result<void> write_file_atomically(const std::string& path, std::string_view content,
                                   Durable durable, mode_t mode) {
  const std::string temporary = unfinished_name(path);
  // A file or a link of that name is never written to, and so never removed.
  const UniqueFd file(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.valid()) return file_error("cannot create", temporary, errno);
  const auto write_it = [&]() -> Result<void> {
    TRY(write_all(file.get(), content, temporary));
    if (durable == Durable::yes && ::fsync(file.get()) != 0)
      return file_error("cannot flush", temporary, errno);
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
      return file_error("cannot rename to", path, errno);
    return durable == Durable::yes ? flush_folder_of(path) : Result<void>{};
  };
  auto written = write_it();
  if (!written.ok()) ::unlink(temporary.c_str());
  return written;
}

Result<void> remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0)
    return errno == ENOENT ? Result<void>{} : file_error("cannot remove", path, errno);
  return flush_folder_of(path);
}

Result<void> make_folders(const std::string& path) {
  TRY(check_way(path));
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return file_error("cannot create the folder", path, error.value());
  return check_way(path);  // another may have been faster
}

}  // namespace derate
