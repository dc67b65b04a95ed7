// One flat JSON object as a line of text.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace derate::bench_cuda {

struct JsonField {
  std::string_view key;
  std::variant<bool, std::int64_t, double, std::string_view> value;
};

// In the order given, without a newline. Numbers that JSON has not (NaN, infinity) become null.
std::string json_line(std::initializer_list<JsonField> fields);

}  // namespace derate::bench_cuda
