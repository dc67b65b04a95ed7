#include "service/http/http_message.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <ctime>
#include <iterator>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"
#include "base/text.h"

namespace derate {

std::optional<std::string> find_field(const HttpFields& fields, std::string_view name) {
  for (const auto& [each, value] : fields)
    if (to_lower(each) == to_lower(name)) return value;
  return std::nullopt;
}

void add_field(std::string& head, std::string_view name, std::string_view value) {
  head += name;
  head += ": ";
  const auto is_text = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f; };
  std::copy_if(value.begin(), value.end(), std::back_inserter(head), is_text);
  head += "\r\n";
}

std::string http_date(WallTime time) {
  const std::time_t second =
      std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  return fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(second));
}

Errc errc_of_status(int status) {
  switch (status) {
    case 400:
    case 405:
    case 413:
    case 414:
    case 421:
    case 431:
      return Errc::invalid_argument;
    case 401:
    case 403:
      return Errc::no_permission;
    case 404:
      return Errc::not_found;
    case 505:
      return Errc::not_supported;
    case 408:
    case 429:
    case 503:
      return Errc::busy;
    default:
      return Errc::io;
  }
}

HttpResponse error_response(int status, std::string_view message) {
  const Errc code = errc_of_status(status);
  return {.status = status,
          .body = json_text({{"ok", false},
                             {"error", std::string(message)},
                             {"code", std::string(word_of(code))},
                             {"exit_code", exit_code_of(code)}}) +
                  "\n"};
}

}  // namespace derate
