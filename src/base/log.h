// Logging: sentences with a level and fields, limited in rate. A caller that logs is given a Log;
// there is none that all code reaches.
//   log.warning(fmt::format("GPU {} is lost", index), {{"gpu", uuid}});
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace derate {

// debug: each step, for who looks for a fault. info: what was asked for and done. warning: work
// goes on with less than was asked for. error: something was not done, and somebody has to act.
enum class LogLevel : std::uint8_t { debug, info, warning, error };
std::string_view to_string(LogLevel level);
// Errors: invalid_argument for a word that is none of the four.
Result<LogLevel> parse_log_level(std::string_view text);

// Where in the code a message is written: messages of one place are of one kind.
struct LogPlace {
  const char* file = "";
  int line = 0;

  static constexpr LogPlace here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// What a message is about, for whoever searches the log: gpu (a UUID), pid, uid, job, path. Names
// are lower case, digits and '_'.
struct LogField {
  LogField(std::string_view field, std::string_view text) : name(field), value(text) {}
  LogField(std::string_view field, std::integral auto number)
      : name(field), value(std::to_string(number)) {}

  std::string name, value;
};
using LogFields = std::vector<LogField>;

struct LogRecord {
  LogLevel level = LogLevel::info;
  std::string text;
  LogFields fields;
  LogPlace place;
};
using LogWriter = std::function<void(const LogRecord&)>;

// Of each kind of message that many are written in a window. Further ones are counted, and once the
// window is over the count is written before the next message of any kind.
struct LogLimit {
  std::uint64_t most = 32;  // more than a machine has GPUs: a line of each is none too many
  Duration window = std::chrono::minutes(1);
};

// A copy writes to the same place; any thread may write. It goes on working in a process that was
// forked while no other thread was writing.
class Log {
 public:
  // Writes nowhere.
  Log() = default;
  // To the writer, one message at a time, which must not log here itself. Text and values come to
  // it as log_text() (base/printing.h) leaves them: printing ASCII of bounded length. `clock`: that
  // of the limit; null: without one.
  explicit Log(LogWriter writer, LogLevel least = LogLevel::debug,
               std::shared_ptr<const Clock> clock = {}, LogLimit limit = {});

  void debug(std::string_view text, LogFields fields = {}, LogPlace at = LogPlace::here()) const {
    write({LogLevel::debug, std::string(text), std::move(fields), at});
  }
  void info(std::string_view text, LogFields fields = {}, LogPlace at = LogPlace::here()) const {
    write({LogLevel::info, std::string(text), std::move(fields), at});
  }
  void warning(std::string_view text, LogFields fields = {}, LogPlace at = LogPlace::here()) const {
    write({LogLevel::warning, std::string(text), std::move(fields), at});
  }
  void error(std::string_view text, LogFields fields = {}, LogPlace at = LogPlace::here()) const {
    write({LogLevel::error, std::string(text), std::move(fields), at});
  }
  void write(LogRecord record) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Writes to standard error: "PROGRAM: TEXT name=value", with the fields that the text does not
// contain. Never blocks (base/write_now.h): lines that cannot be written at once are dropped and
// counted.
LogWriter stderr_writer(std::string program);

// The log of a program: to journald where `journald` is given and standard error is the journal,
// else on standard error. `journald` answers false for a message that it could not pass on, which
// goes to standard error then. The least level is that of $DERATE_LOG, else info; the limit is
// LogLimit's, in real time.
using JournaldWriter = std::function<bool(const LogRecord&)>;
Log program_log(const std::string& program, JournaldWriter journald = {});

// Writes "PROGRAM: TEXT" to standard error if there is no Log, cleaned in the same way. The line is
// dropped if writing it would block.
void print_line(std::string_view program, std::string_view text);

}  // namespace derate
