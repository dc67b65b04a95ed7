// Result<T> holds a value or an Error and must be looked at; TRY passes the error on. CHECK
// (check.h) is for programmer errors; exceptions stop at the library that throws.
#pragma once

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <type_traits>
#include <utility>

namespace derate {

// What kind of failure it is. exit_code.h maps each to the process's exit code.
enum class Errc {
  invalid_argument,  // a value on the command line or in a call
  not_found,         // a GPU, policy, workload or file that was named and is not there
  not_supported,     // the GPU or driver does not offer it
  no_permission,
  query_failed,  // the driver was asked and failed
  driver_not_loaded,
  library_missing,   // libnvidia-ml.so.1 cannot be loaded
  function_missing,  // the library lacks a symbol that we cannot do without
  gpu_lost,
  gpu_stuck,  // a driver call did not come back in time
  busy,       // another governor holds the GPU, or the daemon runs already
  bad_config,
  bad_data,  // a trace, table or data file that does not parse
  io,
  interrupted,
};

struct Error {
  Errc code;
  std::string message;

  // The same error, its message led by where it happened: "FILE:3: delta 0.7: ...".
  Error with(std::string_view context) && {
    message.insert(0, ": ");
    message.insert(0, context);
    return std::move(*this);
  }
};

template <class T>
class [[nodiscard]] Result {
 public:
  using value_type = T;

  Result(Error error) : value_(tl::unexpect, std::move(error)) {}
  template <class U = T>
  requires(!std::is_void_v<T> && std::is_constructible_v<T, U&&> &&
           !std::is_same_v<std::remove_cvref_t<U>, Error> &&
           !std::is_same_v<std::remove_cvref_t<U>, Result>) Result(U&& value)
      : value_(std::forward<U>(value)) {}
  Result() requires(std::is_void_v<T>) = default;

  bool ok() const { return value_.has_value(); }
  explicit operator bool() const { return ok(); }

  // The value; only after ok().
  decltype(auto) operator*() & { return *value_; }
  decltype(auto) operator*() const& { return *value_; }
  decltype(auto) operator*() && {
    if constexpr (!std::is_void_v<T>) return *std::move(value_);
  }
  auto* operator->() { return &*value_; }
  auto* operator->() const { return &*value_; }

  // The error; only after !ok().
  const Error& error() const& { return value_.error(); }
  Error&& error() && { return std::move(value_).error(); }

  // The same result, its error led by `context`.
  Result with(std::string_view context) && {
    if (ok()) return std::move(*this);
    return std::move(value_).error().with(context);
  }

 private:
  tl::expected<T, Error> value_;
};

}  // namespace derate

// The value of a Result, or out of this function with its error. Each use names its temporary anew,
// so that one TRY may stand inside another.
#define TRY(expression) DERATE_TRY_COUNTED(expression, __COUNTER__)
#define DERATE_TRY_COUNTED(expression, n) DERATE_TRY_NAMED(expression, n)
#define DERATE_TRY_NAMED(expression, n)                                 \
  __extension__({                                                       \
    auto&& try_result_##n = (expression);                               \
    if (!try_result_##n.ok()) return std::move(try_result_##n).error(); \
    *std::move(try_result_##n);                                         \
  })
