#include "device/replay/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/check.h"
#include "device/replay/trace_format.h"

namespace derate {
namespace {

constexpr std::size_t kLargestBuffer = std::size_t{4} << 20;

Error file_error(const std::string& path, const char* what, int error) {
  const Errc code = error == EACCES || error == EPERM || error == EROFS ? Errc::no_permission
                    : error == ENOENT || error == ENOTDIR               ? Errc::not_found
                                                                        : Errc::io;
  return {code, fmt::format("cannot {} {}: {}", what, path, std::strerror(error))};
}

// The file's name itself must survive a power failure. Best effort: not each file system syncs
// folders.
void sync_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  const UniqueFd fd(::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) ::fsync(fd.get());
}

std::string head_of(const TraceHeader& header) {
  std::string head =
      fmt::format("{}\n#{}\n{}", kTraceMagic, format_header(header), kTraceTimeColumn);
  for (const Column& column : trace_columns()) head += fmt::format(",{}", column.name);
  return head + '\n';
}

}  // namespace

TraceWriter::TraceWriter(std::string path, UniqueFd fd, TraceWriterOptions options)
    : path_(std::move(path)),
      fd_(std::move(fd)),
      options_(std::move(options)),
      last_(options_.epoch),
      waiting_since_(options_.epoch),
      synced_(options_.epoch),
      previous_(trace_columns().size()) {}

Result<TraceWriter> TraceWriter::create(const std::string& path, const Capability& capability,
                                        TraceWriterOptions options) {
  const TraceHeader header{capability, options.start, options.interval, options.tags};
  // What the reader would refuse must not be recorded for hours.
  if (auto again = parse_header(format_header(header)); !again)
    return Error{Errc::invalid_argument, std::move(again).error().message};
  const bool refuse = options.if_exists == TraceWriterOptions::IfExists::refuse;
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (refuse ? O_EXCL : O_TRUNC);
  UniqueFd fd(::open(path.c_str(), flags, 0644));
  if (!fd.valid() && errno == EEXIST)
    return Error{Errc::invalid_argument,
                 fmt::format("{} exists: name another file, or ask to overwrite it", path)};
  if (!fd.valid()) return file_error(path, "create", errno);
  TraceWriter writer(path, std::move(fd), std::move(options));
  writer.buffer_ = head_of(header);
  auto written = writer.write_out();
  if (written && writer.options_.sync_every > Duration{}) {
    written = writer.sync();
    sync_folder_of(path);
  }
  if (written) return writer;
  writer.fd_ = UniqueFd();
  if (refuse) ::unlink(path.c_str());  // ours: O_EXCL made it
  return std::move(written).error();
}

TraceWriter::~TraceWriter() {
  if (fd_.valid()) (void)write_out();
}

Result<void> TraceWriter::append(const Sample& sample) {
  const auto since = std::chrono::floor<std::chrono::microseconds>(sample.time - options_.epoch);
  if (sample.time < last_ || since.count() > kTraceLongestUs)
    return Error{
        Errc::invalid_argument,
        fmt::format("{}: a row at {} us: its time lies before the row at {} us, or is "
                    "31 years off",
                    path_, since.count(),
                    std::chrono::floor<std::chrono::microseconds>(last_ - options_.epoch).count())};
  std::string line = fmt::format("{}", since.count());
  std::vector<std::string> cells;
  for (const Column& column : trace_columns()) {
    std::string cell;
    column.put(column, sample, cell);
    line += ',';
    const bool same = cell.size() > 1 && cell == previous_[cells.size()];
    line += same ? kTraceDitto : std::string_view(cell);
    cells.push_back(std::move(cell));
  }
  TRY(add_line(line, sample.time));
  last_ = sample.time;
  previous_ = std::move(cells);
  return flush(sample.time);
}

Result<void> TraceWriter::label(std::string_view text) {
  std::string line = fmt::format("{} {}", kTraceLabel, text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return add_line(line, last_);
}

Result<void> TraceWriter::add_line(const std::string& line, Instant time) {
  CHECK(fd_.valid());
  if (buffer_.size() + line.size() > kLargestBuffer) {
    TRY(write_out());  // what made it grow is over, or is told
  }
  if (buffer_.empty()) waiting_since_ = time;
  buffer_ += line;
  buffer_ += '\n';
  return {};
}

Result<void> TraceWriter::flush(Instant now) {
  CHECK(fd_.valid());
  if (!buffer_.empty() && now - waiting_since_ >= options_.write_every) TRY(write_out());
  if (options_.sync_every > Duration{} && now - synced_ >= options_.sync_every) {
    TRY(sync());
    synced_ = now;
  }
  return {};
}

Result<void> TraceWriter::close() {
  CHECK(fd_.valid());
  TRY(write_out());
  if (options_.sync_every > Duration{}) TRY(sync());
  fd_ = UniqueFd();
  return {};
}

Result<void> TraceWriter::write_out() {
  std::size_t written = 0;
  while (written < buffer_.size()) {
    const ssize_t n = ::write(fd_.get(), buffer_.data() + written, buffer_.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n > 0) {
      written += static_cast<std::size_t>(n);
      continue;
    }
    const int error = n < 0 ? errno : ENOSPC;
    // Half a line must not stay; where it cannot be taken back, the next write goes on within it.
    if (written > 0 && ::ftruncate(fd_.get(), size_) != 0) {
      size_ += static_cast<off_t>(written);
      buffer_.erase(0, written);
    }
    return file_error(path_, "write", error);
  }
  size_ += static_cast<off_t>(written);
  buffer_.clear();
  return {};
}

Result<void> TraceWriter::sync() {
  if (::fdatasync(fd_.get()) == 0 || errno == EINVAL || errno == EROFS) return {};  // a pipe
  return file_error(path_, "sync", errno);
}

}  // namespace derate
