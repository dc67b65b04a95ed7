// Any bytes as what callers of the HTTP server send, and as what a server answers: requests, or a
// status that refuses them, never a crash; the same however the bytes are cut; no more kept than is
// allowed.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "service/http/http_parser.h"

namespace {

using namespace derate;

constexpr HttpRequestParser::Limits kLimits{.head = 512, .body = 256, .fields = 16};

bool is_plain(std::string_view text) {
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

void check_request(const HttpRequest& request) {
  CHECK(!request.method.empty() && request.path.size() <= request.target.size());
  CHECK(request.path == "*" || request.path.front() == '/');
  CHECK(is_plain(request.path) && (request.path + "/").find("/../") == std::string::npos);
  for (const auto& [name, value] : request.query) CHECK(is_plain(name) && is_plain(value));
  CHECK(request.fields.size() <= kLimits.fields && request.body.size() <= kLimits.body);
}

// Their bodies, and the fault's status.
std::vector<std::string> heard(std::string_view bytes, std::size_t piece) {
  std::vector<std::string> out;
  HttpRequestParser parser(kLimits);
  while (!bytes.empty()) {
    std::string_view some = bytes.substr(0, piece);
    bytes.remove_prefix(some.size());
    while (!some.empty()) {
      const std::size_t used = parser.put(some);
      CHECK(used <= some.size() && (used > 0 || parser.fault()));
      some.remove_prefix(used);
      CHECK(parser.bytes() <= kLimits.head + kLimits.body + (4 << 10) + piece);
      if (parser.fault()) return out.push_back(std::to_string(parser.fault()->status)), out;
      if (!parser.is_whole()) continue;
      check_request(parser.request());
      out.push_back(parser.request().target + parser.request().body);
      parser = HttpRequestParser(kLimits);
    }
  }
  return out;
}

std::string answer_in(std::string_view bytes, std::size_t piece, bool is_head) {
  std::string out;
  HttpResponseParser parser(is_head);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece, bytes.size()))) {
    CHECK(parser.put(bytes.substr(0, piece)) <= piece);
    out += parser.take_body();
  }
  parser.put_end();
  CHECK(parser.is_whole() != !parser.fault().empty());
  return out + parser.take_body();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // The chunks' heads together are bounded by what has come with them: not the same for any cut.
  const std::size_t piece = 1 + data[0] % 16;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (bytes.size() < 2048) CHECK(heard(bytes, piece) == heard(bytes, bytes.size()));
  (void)heard(bytes, piece);
  for (const bool is_head : {false, true})
    CHECK(answer_in(bytes, piece, is_head) == answer_in(bytes, bytes.size() + 1, is_head));
  return 0;
}
