// Runs a function at the end of the scope: `const Defer close([&] { ... });`
#pragma once

#include <utility>

namespace derate {

template <class F>
class Defer {
 public:
  [[nodiscard]] explicit Defer(F f) : f_(std::move(f)) {}
  Defer(const Defer&) = delete;
  Defer& operator=(const Defer&) = delete;
  ~Defer() { f_(); }

 private:
  F f_;
};

}  // namespace derate
