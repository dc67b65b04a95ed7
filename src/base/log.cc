#include "base/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <tuple>

#include "base/journald.h"
#include "base/printing.h"
#include "base/write_now.h"

namespace derate {
namespace {

constexpr std::size_t kLongestValue = 500;  // of a field, in bytes

struct LevelRow {
  LogLevel level;
  const char* word;
  spdlog::level::level_enum in_spdlog;
};
constexpr std::array kLevels{LevelRow{LogLevel::debug, "debug", spdlog::level::debug},
                             LevelRow{LogLevel::info, "info", spdlog::level::info},
                             LevelRow{LogLevel::warning, "warning", spdlog::level::warn},
                             LevelRow{LogLevel::error, "error", spdlog::level::err}};

const LevelRow& row_of(LogLevel level) { return kLevels[static_cast<std::size_t>(level)]; }

bool is_word_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// As a word of its own: "uid 1000" does not say 10.
bool mentions(std::string_view text, std::string_view value) {
  for (auto at = text.find(value); at != text.npos; at = text.find(value, at + 1)) {
    const auto end = at + value.size();
    const bool begins = at == 0 || !is_word_character(text[at - 1]);
    if (begins && (end == text.size() || !is_word_character(text[end]))) return true;
    if (value.empty()) return false;
  }
  return false;
}

// As logfmt has it: nothing in a value can look like another field.
std::string quoted(const std::string& value) {
  if (!value.empty() && value.find_first_of(" =\"\\") == value.npos) return value;
  std::string out = "\"";
  for (const char c : value) (c == '"' || c == '\\' ? out += '\\' : out) += c;
  return out + "\"";
}

std::string line_of(const LogRecord& record) {
  std::string out = record.text;
  for (const LogField& field : record.fields)
    if (!mentions(record.text, field.value))
      out += fmt::format(" {}={}", field.name, quoted(field.value));
  return out;
}

LogRecord cleaned(LogRecord record) {
  record.text = log_text(record.text);
  for (LogField& field : record.fields) field.value = log_text(field.value, kLongestValue);
  return record;
}

}  // namespace

// Counts of the records of each kind that were written, and that were not. Log::State, which this
// file alone defines, has one; a type of an unnamed namespace would be another one in each file of
// a unity build.
class LogKindCounts {
 public:
  explicit LogKindCounts(LogLimit limit) : limit_(limit) {}

  // Whether it is to be written.
  bool take(const LogRecord& record, Instant now) {
    Kind& kind = kinds_[{record.place.file, record.place.line}];
    if (now - kind.since >= limit_.window || kind.written == 0) kind = {now, 0, 0, {}};
    if (kind.written < limit_.most) return ++kind.written > 0;
    ++kind.left_out;
    kind.last = record;
    return false;
  }

  // What was left out in windows that are over; each is said once.
  std::vector<LogRecord> take_left_out(Instant now) {
    std::vector<LogRecord> out;
    for (auto& [place, kind] : kinds_) {
      if (kind.left_out == 0 || now - kind.since < limit_.window) continue;
      LogRecord record = std::move(kind.last);
      record.text =
          log_text(fmt::format("{} more like this were left out: {}", kind.left_out, record.text));
      record.fields.emplace_back("left_out", kind.left_out);
      out.push_back(std::move(record));
      kind = {};
    }
    return out;
  }

 private:
  struct Kind {
    Instant since{};
    std::uint64_t written = 0, left_out = 0;
    LogRecord last;  // of those that were left out
  };

  LogLimit limit_;
  std::map<std::pair<std::string_view, int>, Kind> kinds_;
};

namespace {

// spdlog has no fields: the message itself lies beside its text while that goes through spdlog.
class WriterSink final : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 public:
  WriterSink(LogWriter writer, const LogRecord& now) : writer_(std::move(writer)), now_(now) {}

 private:
  void sink_it_(const spdlog::details::log_msg&) override { writer_(now_); }
  void flush_() override {}

  LogWriter writer_;
  const LogRecord& now_;
};

// $DERATE_LOG, or what is wrong with it.
Result<LogLevel> wanted_level() {
  const char* const wanted = ::secure_getenv("DERATE_LOG");
  if (wanted == nullptr || *wanted == '\0') return LogLevel::info;
  auto level = parse_log_level(wanted);
  if (!level.ok()) return std::move(level).error().with("DERATE_LOG");
  return level;
}

}  // namespace

std::string_view to_string(LogLevel level) { return row_of(level).word; }

Result<LogLevel> parse_log_level(std::string_view text) {
  for (const LevelRow& row : kLevels)
    if (text == row.word) return row.level;
  return Error{Errc::invalid_argument,
               fmt::format("level '{}': allowed are debug, info, warning, error", text)};
}

struct Log::State {
  State(LogWriter writer, LogLevel least, std::shared_ptr<const Clock> of_limit, LogLimit limit)
      : clock(std::move(of_limit)),
        counts(limit),
        logger("", std::make_shared<WriterSink>(std::move(writer), now)) {
    logger.set_level(row_of(least).in_spdlog);
  }

  void pass(LogRecord record) {
    now = std::move(record);
    // No time: standard error shows none, and journald has its own.
    logger.log(spdlog::log_clock::time_point(),
               spdlog::source_loc(now.place.file, now.place.line, ""), row_of(now.level).in_spdlog,
               now.text);
  }

  std::mutex mutex;
  std::shared_ptr<const Clock> clock;
  LogKindCounts counts;
  LogRecord now;
  spdlog::logger logger;
};

Log::Log(LogWriter writer, LogLevel least, std::shared_ptr<const Clock> clock, LogLimit limit)
    : state_(std::make_shared<State>(std::move(writer), least, std::move(clock), limit)) {}

void Log::write(LogRecord record) const {
  if (state_ == nullptr || !state_->logger.should_log(row_of(record.level).in_spdlog)) return;
  record = cleaned(std::move(record));
  const std::lock_guard lock(state_->mutex);
  if (state_->clock != nullptr) {
    const Instant now = state_->clock->now();
    for (LogRecord& left_out : state_->counts.take_left_out(now)) state_->pass(std::move(left_out));
    if (!state_->counts.take(record, now)) return;
  }
  state_->pass(std::move(record));
}

LogWriter stderr_writer(std::string program) {
  const std::size_t most = kLongestLogLine - program.size() - 2;
  auto lines = std::make_shared<LineWriter>(std::move(program), STDERR_FILENO);
  return [most, lines](const LogRecord& record) { lines->write(log_text(line_of(record), most)); };
}

Log program_log(const std::string& program, JournaldWriter journald) {
  LogWriter writer = stderr_writer(program);
  if (journald && stderr_is_journald())
    writer = [journald = std::move(journald), plain = std::move(writer)](const LogRecord& record) {
      if (!journald(record)) plain(record);
    };
  const auto level = wanted_level();
  Log log(std::move(writer), level.ok() ? *level : LogLevel::info, std::make_shared<SystemClock>());
  if (!level.ok()) log.warning(level.error().message);
  return log;
}

void print_line(std::string_view program, std::string_view text) {
  (void)write_now(STDERR_FILENO, log_text(fmt::format("{}: {}", program, text)) + "\n");
}

}  // namespace derate
