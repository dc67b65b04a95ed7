// Random bytes as small files and lists that other users may write: a journal, /etc/subuid, a list
// of GPUs, CUDA_VISIBLE_DEVICES. The readers may reject them but not crash, and an accepted input
// must read back the same.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/gpu_selection.h"
#include "integ/cuda_visible.h"
#include "service/transport/subordinate_ids.h"
#include "store/journal.h"

namespace {

using namespace derate;

void check_journal(std::string_view text) {
  const auto entry = parse_journal(text);
  if (!entry.ok()) {
    CHECK(entry.error().code == Errc::bad_data);
    return;
  }
  const std::string written = journal_text(*entry);
  const auto back = parse_journal(written);
  CHECK(back.ok() && journal_text(*back) == written);
}

void check_subordinate_ids(std::string_view text) {
  const auto number = [](const std::string& name) -> std::optional<std::uint32_t> {
    if (name.size() % 3 == 0) return std::nullopt;
    return static_cast<std::uint32_t>(1000 + name.size());
  };
  const auto ranges = subordinate_ranges(text, number);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    CHECK(ranges[i].first <= ranges[i].last);
    CHECK(i == 0 || ranges[i - 1].last < ranges[i].first);
    CHECK(person_of(ranges, ranges[i].first) == ranges[i].person);
    CHECK(person_of(ranges, ranges[i].last) == ranges[i].person);
  }
}

void check_selection(std::string_view text) {
  const auto list = parse_gpu_selection(text);
  if (!list.ok()) {
    CHECK(list.error().code == Errc::invalid_argument);
    return;
  }
  const auto back = parse_gpu_selection(to_string(*list));
  CHECK(back.ok() && *back == *list);
}

SeenGpus machine(int count, bool mixed) {
  SeenGpus out;
  for (int i = 0; i < count; ++i) {
    SeenGpu gpu;
    gpu.id = {i, "GPU-0" + std::to_string(i) + "c0de00-0000-0000-0000-000000000000",
              "0000:0" + std::to_string(i) + ":00.0", mixed && i % 2 == 1 ? "A100" : "V100"};
    gpu.minor = i;
    out.gpus.push_back(gpu);
  }
  return out;
}

void check_visible(std::string_view text) {
  const std::size_t cut = text.find('\0');
  const std::string_view order = cut == text.npos ? "" : text.substr(cut + 1);
  for (const int count : {0, 1, 4}) {
    const SeenGpus seen = machine(count, text.size() % 2 == 0);
    const auto visible = cuda_visible_gpus(text.substr(0, cut), order, seen);
    if (!visible.ok()) {
      CHECK(visible.error().code == Errc::invalid_argument);
      continue;
    }
    CHECK(visible->size() <= seen.gpus.size());
    for (const int gpu : *visible) CHECK(gpu >= 0 && gpu < count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      check_journal(text);
      break;
    case 1:
      check_subordinate_ids(text);
      break;
    case 2:
      check_selection(text);
      break;
    default:
      check_visible(text);
      break;
  }
  return 0;
}
