#include "store/history/history_chunk.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace derate {
namespace {

constexpr std::size_t kSealBytes = 8;

std::uint64_t mask_below(int bits) {
  return bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

// Small differences of either sign are small numbers.
std::uint64_t zigzag(std::uint64_t difference) {
  const auto value = static_cast<std::int64_t>(difference);
  return (difference << 1) ^ static_cast<std::uint64_t>(value >> 63);
}
std::uint64_t unzigzag(std::uint64_t value) { return (value >> 1) ^ (~(value & 1) + 1); }

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7f) | 0x80);
  out += static_cast<char>(value);
}

// Takes numbers from the front of bytes that may be anything.
struct VarintReader {
  std::string_view rest;

  std::optional<std::uint64_t> next() {
    std::uint64_t out = 0;
    for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest.front());
      rest.remove_prefix(1);
      const std::uint64_t bits = byte & 0x7f;
      if (shift == 63 && bits > 1) return std::nullopt;
      out |= bits << shift;
      if ((byte & 0x80) == 0) return out;
    }
    return std::nullopt;
  }
};

Error broken_chunk(const char* what) { return {Errc::bad_data, what}; }

// Of a column: differences, where one of zero is followed by how many more there are.
void put_column(std::string& out, std::uint64_t present, const HistoryChunk::Column& values) {
  std::uint64_t before = 0;
  for (std::uint64_t left = present; left != 0;) {
    const auto value =
        static_cast<std::uint64_t>(values[static_cast<std::size_t>(std::countr_zero(left))]);
    left &= left - 1;
    put_varint(out, zigzag(value - before));
    std::uint64_t repeats = 0;
    for (; value == before && left != 0; ++repeats, left &= left - 1)
      if (static_cast<std::uint64_t>(values[static_cast<std::size_t>(std::countr_zero(left))]) !=
          value)
        break;
    if (value == before) put_varint(out, repeats);
    before = value;
  }
}

bool take_column(VarintReader& read, std::uint64_t present, HistoryChunk::Column& values) {
  std::uint64_t value = 0;
  for (std::uint64_t left = present; left != 0;) {
    const auto coded = read.next();
    if (!coded) return false;
    value += unzigzag(*coded);
    std::uint64_t times = 1;
    if (*coded == 0) {
      const auto repeats = read.next();
      if (!repeats || *repeats >= static_cast<std::uint64_t>(std::popcount(left))) return false;
      times += *repeats;
    }
    for (; times > 0; --times, left &= left - 1)
      values[static_cast<std::size_t>(std::countr_zero(left))] = static_cast<std::int64_t>(value);
  }
  return true;
}

std::uint64_t checksum(std::initializer_list<std::int64_t> which, std::string_view row) {
  std::uint64_t sum = 0x9e3779b97f4a7c15;
  // Each step can be undone, so that no two words that differ give one sum.
  const auto mix = [&](std::uint64_t word) {
    sum = (sum ^ word) * 0xbf58476d1ce4e5b9;
    sum ^= sum >> 32;
  };
  for (const std::int64_t number : which) mix(static_cast<std::uint64_t>(number));
  mix(row.size());
  while (!row.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(sizeof word, row.size());
    std::memcpy(&word, row.data(), size);
    mix(word);
    row.remove_prefix(size);
  }
  return sum;
}

}  // namespace

void HistoryChunk::clear() {
  slots_ = 0;
  present_.fill(0);
}

void HistoryChunk::fold(int slot, const HistoryPoint& more) {
  CHECK(slot >= 0 && slot < kMostSlots);
  const std::uint64_t bit = std::uint64_t{1} << slot;
  slots_ |= bit;
  for (std::size_t i = 0; i < kHistoryFields; ++i) {
    if (!more.values[i]) continue;
    std::int64_t& value = values_[i][static_cast<std::size_t>(slot)];
    value = (present_[i] & bit) != 0 ? folded(history_columns()[i].fold, value, *more.values[i])
                                     : *more.values[i];
    present_[i] |= bit;
  }
}

HistoryPoint HistoryChunk::point(int slot) const {
  HistoryPoint out;
  for (std::size_t i = 0; i < kHistoryFields; ++i)
    if ((present_[i] >> slot & 1) != 0) out.values[i] = values_[i][static_cast<std::size_t>(slot)];
  return out;
}

// slots, fields, those of them that are not in every slot; then each: its slots where it is one of
// those, its values.
std::string HistoryChunk::encoded() const {
  std::uint64_t fields = 0, sparse = 0;
  for (std::size_t i = 0; i < kHistoryFields; ++i) {
    if (present_[i] != 0) fields |= std::uint64_t{1} << i;
    if (present_[i] != 0 && present_[i] != slots_) sparse |= std::uint64_t{1} << i;
  }
  std::string out;
  put_varint(out, slots_);
  put_varint(out, fields);
  put_varint(out, sparse);
  for (std::size_t i = 0; i < kHistoryFields; ++i) {
    if ((sparse >> i & 1) != 0) put_varint(out, present_[i]);
    put_column(out, present_[i], values_[i]);
  }
  return out;
}

Result<void> HistoryChunk::decode(std::string_view bytes, int slots) {
  clear();
  VarintReader read{bytes};
  const auto its_slots = read.next(), fields = read.next(), sparse = read.next();
  if (!its_slots || !fields || !sparse) return broken_chunk("a chunk ends in its head");
  if ((*its_slots & ~mask_below(slots)) != 0) return broken_chunk("a chunk has too many slots");
  if ((*fields & ~mask_below(kHistoryFields)) != 0 || (*sparse & ~*fields) != 0)
    return broken_chunk("a chunk has fields that there are none of");
  slots_ = *its_slots;
  for (std::size_t i = 0; i < kHistoryFields; ++i) {
    if ((*fields >> i & 1) == 0) continue;
    const auto present = (*sparse >> i & 1) != 0 ? read.next() : slots_;
    if (!present || *present == 0 || (*present & ~slots_) != 0)
      return broken_chunk("a column of a chunk has slots that there are none of");
    if (!take_column(read, *present, values_[i])) return broken_chunk("a column of a chunk ends");
    present_[i] = *present;
  }
  if (!read.rest.empty()) return broken_chunk("a chunk goes on behind its end");
  return {};
}

void append_part(std::string& row, std::int64_t series, std::string_view chunk) {
  put_varint(row, static_cast<std::uint64_t>(series));
  put_varint(row, chunk.size());
  row += chunk;
}

Result<std::vector<HistoryPart>> split_parts(std::string_view row) {
  std::vector<HistoryPart> out;
  for (VarintReader read{row}; !read.rest.empty();) {
    const auto series = read.next(), size = read.next();
    if (!series || !size || *size > read.rest.size()) return broken_chunk("a row of chunks ends");
    const auto id = static_cast<std::int64_t>(*series);
    if (!out.empty() && id <= out.back().series)
      return broken_chunk("a row of chunks is not in order");
    out.push_back({id, read.rest.substr(0, *size)});
    read.rest.remove_prefix(*size);
  }
  return out;
}

std::string sealed(std::initializer_list<std::int64_t> which, std::string_view row) {
  const std::uint64_t sum = checksum(which, row);
  std::string out(kSealBytes, '\0');
  std::memcpy(out.data(), &sum, kSealBytes);
  out += row;
  return out;
}

std::optional<std::string_view> unsealed(std::initializer_list<std::int64_t> which,
                                         std::string_view bytes) {
  if (bytes.size() < kSealBytes) return std::nullopt;
  std::uint64_t sum = 0;
  std::memcpy(&sum, bytes.data(), kSealBytes);
  const std::string_view row = bytes.substr(kSealBytes);
  if (checksum(which, row) != sum) return std::nullopt;
  return row;
}

}  // namespace derate
