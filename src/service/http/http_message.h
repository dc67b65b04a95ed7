// HTTP/1.1 requests and responses as values. Boost.Beast parses them (http_parser.cc): it is a
// library of headers, so that no program needs one more to run, and it leaves the socket to us,
// whose callers then share it as those of the other sockets do.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/units.h"

namespace derate {

using HttpFields = std::vector<std::pair<std::string, std::string>>;
// The value of the first of that name, whatever its case; empty: there is none.
std::optional<std::string> find_field(const HttpFields& fields, std::string_view name);
// One more line of a head that is to be sent. Control characters are left out: no value begins
// another field.
void add_field(std::string& head, std::string_view name, std::string_view value);

// "Sun, 06 Nov 1994 08:49:37 GMT" (IMF-fixdate of RFC 9110, 5.6.7).
std::string http_date(WallTime time);

struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as it was sent: "/v1/history?from=now-1h"
  std::string path;    // of it, percent-decoded: "/v1/history"
  HttpFields query;    // of it, percent-decoded, in order; a '+' is a blank
  HttpFields fields;   // of the head
  std::string body;
  bool keep_alive = true;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpFields fields = {};  // beside Content-Type, Content-Length, Connection, Date
  bool close = false;      // the connection ends with it
};

// What a status of 400 and above means where nothing else is said, as by a proxy.
Errc errc_of_status(int status);
// {"ok":false,"error":...,"code":...,"exit_code":...}, as the sockets of lines answer.
HttpResponse error_response(int status, std::string_view message);

}  // namespace derate
