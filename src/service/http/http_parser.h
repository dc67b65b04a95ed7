// HTTP/1.x as bytes, made into the values of http_message.h. The parser is Boost.Beast's; what it
// leaves open and servers disagree about (how long a request is, which path it names) is refused
// here.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "service/http/http_message.h"

namespace derate {

// What is wrong with a request: the status of its answer, and why.
struct HttpFault {
  int status = 400;
  std::string message;
};

// One request.
class HttpRequestParser {
 public:
  struct Limits {
    std::size_t head = 8 << 10, body = 64 << 10;  // bytes
    std::size_t fields = 100;
  };
  explicit HttpRequestParser(const Limits& limits);
  HttpRequestParser(HttpRequestParser&&) noexcept;
  HttpRequestParser& operator=(HttpRequestParser&&) noexcept;
  ~HttpRequestParser();

  // Takes in what has come, and returns how many of the bytes are the request's: fewer than all
  // where it ends before, or is wrong.
  std::size_t put(std::string_view bytes);

  bool has_begun() const;  // its first byte has come
  bool has_head() const;
  bool is_whole() const;
  // The sender waits for "100 Continue" before it sends the body (Expect).
  bool waits_for_continue() const;
  // 400, 413, 414, 417, 431, 501 or 505. Where the next request begins is not known then.
  const std::optional<HttpFault>& fault() const;
  // With has_head() without its body, with is_whole() with it.
  const HttpRequest& request() const;
  bool is_1_0() const;        // its sender does not know chunks
  std::size_t bytes() const;  // held of it

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// One response, as a client reads it: its head, and its body by pieces. Interim ones (1xx) are
// passed over.
class HttpResponseParser {
 public:
  // `is_head`: the answer to HEAD, which has no body.
  explicit HttpResponseParser(bool is_head);
  HttpResponseParser(HttpResponseParser&&) noexcept;
  HttpResponseParser& operator=(HttpResponseParser&&) noexcept;
  ~HttpResponseParser();

  // As above.
  std::size_t put(std::string_view bytes);
  // The server has closed the connection, which ends a body of unknown length.
  void put_end();

  bool has_head() const;
  bool is_whole() const;
  // What is wrong with it; empty: nothing.
  const std::string& fault() const;
  const HttpResponse& head() const;  // status, fields and type; no body
  // Of the body what has come since.
  std::string take_body();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace derate
