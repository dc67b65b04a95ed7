#include "integ/kube/protobuf.h"

#include <fmt/format.h>

#include <string>

namespace derate {
namespace {

Error bad_message(const std::string& what) { return {Errc::bad_data, what}; }

Result<std::optional<std::uint64_t>> find_varint(std::string_view& rest) {
  std::uint64_t out = 0;
  std::size_t used = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (used == rest.size()) return std::optional<std::uint64_t>();
    const auto byte = static_cast<std::uint8_t>(rest[used++]);
    out |= std::uint64_t{byte & 0x7fU} << shift;
    if (byte >= 0x80) continue;
    rest.remove_prefix(used);
    return std::optional(out);
  }
  return bad_message("a number of more than 64 bits");
}

std::optional<std::string_view> find_bytes(std::string_view& rest, std::uint64_t size) {
  if (size > rest.size()) return std::nullopt;
  const std::string_view out = rest.substr(0, size);
  rest.remove_prefix(size);
  return out;
}

// The bytes of a field of that kind; empty: they are not all here.
Result<std::optional<std::string_view>> find_value(std::string_view& rest, Wire wire) {
  switch (wire) {
    case Wire::varint:
      if (!TRY(find_varint(rest))) return std::optional<std::string_view>();
      return std::optional(std::string_view());
    case Wire::eight_bytes:
      return find_bytes(rest, 8);
    case Wire::four_bytes:
      return find_bytes(rest, 4);
    case Wire::length:
      break;
    default:
      return bad_message(fmt::format("a field of kind {}, allowed are 0, 1, 2 and 5",
                                     static_cast<unsigned>(wire)));
  }
  const auto size = TRY(find_varint(rest));
  if (!size) return std::optional<std::string_view>();
  return find_bytes(rest, *size);
}

}  // namespace

Result<std::optional<WireField>> find_field(std::string_view& rest) {
  std::string_view after = rest;
  const auto tag = TRY(find_varint(after));
  if (!tag) return std::optional<WireField>();
  WireField out{.number = *tag >> 3, .wire = static_cast<Wire>(*tag & 7), .bytes = {}};
  if (out.number == 0) return bad_message("a field of number 0");
  const auto value = TRY(find_value(after, out.wire));
  if (!value) return std::optional<WireField>();
  if (out.wire == Wire::length) out.bytes = *value;
  rest = after;
  return std::optional(out);
}

Result<WireField> take_field(std::string_view& rest) {
  const auto out = TRY(find_field(rest));
  if (!out) return bad_message(fmt::format("the last {} bytes are no whole field", rest.size()));
  return *out;
}

Result<std::vector<std::vector<std::string_view>>> fields_of(std::string_view message,
                                                             std::size_t most) {
  std::vector<std::vector<std::string_view>> out(most + 1);
  while (!message.empty()) {
    const WireField field = TRY(take_field(message));
    if (field.wire == Wire::length && field.number <= most)
      out[field.number].push_back(field.bytes);
  }
  return out;
}

}  // namespace derate
