// Reader of protobuf messages field by field, without a schema
// (protobuf.dev/programming-guides/encoding).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace derate {

// How a field travels. Groups, which proto3 does not have, are refused.
enum class Wire : std::uint8_t { varint = 0, eight_bytes = 1, length = 2, four_bytes = 5 };

struct WireField {
  std::uint64_t number = 0;
  Wire wire = Wire::varint;
  std::string_view bytes;  // of Wire::length: a text or a message
};

// Takes the next field off `rest`. Empty: `rest` ends within the field, and is as it was. Errors:
// bad_data for what no message begins with.
Result<std::optional<WireField>> find_field(std::string_view& rest);
// The same of a message that is here whole. Errors: bad_data where it ends within the field, too.
Result<WireField> take_field(std::string_view& rest);

// The texts and messages in `message`, by their numbers: with `most` of 3, those of 1 to 3. Fields
// may come in any order, and each any number of times. Errors: those of take_field().
Result<std::vector<std::vector<std::string_view>>> fields_of(std::string_view message,
                                                             std::size_t most);

}  // namespace derate
