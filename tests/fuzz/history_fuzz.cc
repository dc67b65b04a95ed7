// Any bytes as a chunk of points, and as a row of chunks, as a file of the history may have them:
// refused, or points in slots that there are, which are written and read the same; never a crash.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "store/history/history_chunk.h"

namespace derate {
namespace {

void check_chunk(std::string_view bytes, int slots) {
  HistoryChunk chunk;
  const auto read = chunk.decode(bytes, slots);
  CHECK(read.ok() || read.error().code == Errc::bad_data);
  if (!read.ok()) return;
  CHECK(chunk.slots() >> (slots - 1) >> 1 == 0);
  HistoryChunk back, folded;
  CHECK(back.decode(chunk.encoded(), slots).ok() && back.slots() == chunk.slots());
  each_bit(chunk.slots(), [&](std::size_t slot) {
    const int at = static_cast<int>(slot);
    CHECK(back.point(at) == chunk.point(at));
    folded.fold(at, chunk.point(at));
  });
  CHECK(folded.encoded() == chunk.encoded());
}

void check_row(std::string_view bytes, int slots) {
  const auto parts = split_parts(bytes);
  CHECK(parts.ok() || parts.error().code == Errc::bad_data);
  if (!parts.ok()) return;
  std::string row;
  for (const HistoryPart& part : *parts) {
    check_chunk(part.chunk, slots);
    append_part(row, part.series, part.chunk);
  }
  const auto back = split_parts(row);
  CHECK(back.ok() && *back == *parts);
}

}  // namespace
}  // namespace derate

// The first byte: how many slots a row has.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  if (size == 0) return 0;
  constexpr int kSlots[] = {1, 24, 60};
  const int slots = kSlots[data[0] % 3];
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  check_chunk(bytes, slots);
  check_row(bytes, slots);
  (void)unsealed({1, 2}, bytes);
  CHECK(unsealed({1, 2}, sealed({1, 2}, bytes)) == bytes);
  return 0;
}
