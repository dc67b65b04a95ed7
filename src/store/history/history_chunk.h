// The encoding of points in a file: some points of a series column by column, as differences, and
// the chunks of all series in a row. The reader checks all bytes, which may be anything.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "store/history/history.h"

namespace derate {

// Points of one series in the slots of a row, [0, kMostSlots).
class HistoryChunk {
 public:
  static constexpr int kMostSlots = 60;

  void clear();
  bool empty() const { return slots_ == 0; }
  // Bit n: slot n has a point.
  std::uint64_t slots() const { return slots_; }
  void fold(int slot, const HistoryPoint& more);
  HistoryPoint point(int slot) const;
  using Column = std::array<std::int64_t, kMostSlots>;  // by slot
  // Calls f(field, slots that have it, its values) of each field that some slot has.
  template <class F>
  void each_column(F&& f) const {
    for (std::size_t field = 0; field < kHistoryFields; ++field)
      if (present_[field] != 0) f(field, present_[field], values_[field]);
  }

  std::string encoded() const;
  // Replaces what it has. Slots are below `slots`. Errors: bad_data; what it has then is not said.
  Result<void> decode(std::string_view bytes, int slots);

 private:
  std::uint64_t slots_ = 0;
  std::array<std::uint64_t, kHistoryFields> present_{};  // by slot, of those in slots_
  std::array<Column, kHistoryFields> values_;            // where present
};

// Calls f(n) of each bit n that is set, the lowest first.
template <class F>
void each_bit(std::uint64_t bits, F&& f) {
  for (; bits != 0; bits &= bits - 1) f(static_cast<std::size_t>(std::countr_zero(bits)));
}

struct HistoryPart {
  std::int64_t series = 0;
  std::string_view chunk;

  bool operator==(const HistoryPart&) const = default;
};

// The parts of a row, ascending by series.
void append_part(std::string& row, std::int64_t series, std::string_view chunk);
// Views into `row`. Errors: bad_data.
Result<std::vector<HistoryPart>> split_parts(std::string_view row);

// With a checksum before it, of the row and of the numbers that say which one it is: a byte that
// has changed in a file is a gap, not another figure.
std::string sealed(std::initializer_list<std::int64_t> which, std::string_view row);
// What was sealed. Empty: it is not what it was, or of another row.
std::optional<std::string_view> unsealed(std::initializer_list<std::int64_t> which,
                                         std::string_view bytes);

}  // namespace derate
