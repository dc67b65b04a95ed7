// A value that many owners share and nobody changes: readings that stay the same for many samples
// are copied as a pointer.
#pragma once

#include <memory>
#include <utility>

namespace derate {

template <class T>
class SharedValue {
 public:
  SharedValue() = default;  // empty
  explicit SharedValue(T value) : value_(std::make_shared<const T>(std::move(value))) {}

  explicit operator bool() const { return value_ != nullptr; }
  const T& operator*() const { return *value_; }
  const T* operator->() const { return value_.get(); }
  // By what they are, not by where.
  bool operator==(const SharedValue& other) const {
    return value_ == other.value_ || (value_ && other.value_ && *value_ == *other.value_);
  }

 private:
  std::shared_ptr<const T> value_;
};

}  // namespace derate
