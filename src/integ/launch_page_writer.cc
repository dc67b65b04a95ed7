#include "integ/launch_page_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include "wire/launch_page.h"

namespace derate {
namespace {

// "GPU-51a00000-0000-...", without its dashes.
Result<std::array<std::uint8_t, 16>> uuid_bytes(const std::string& text) {
  std::string digits = text.starts_with("GPU-") ? text.substr(4) : "";
  std::erase(digits, '-');
  std::array<std::uint8_t, 16> out{};
  bool good = digits.size() == 2 * out.size();
  for (std::size_t i = 0; good && i < out.size(); ++i) {
    const char* const begin = digits.data() + 2 * i;
    const auto read = std::from_chars(begin, begin + 2, out[i], 16);
    good = read.ec == std::errc() && read.ptr == begin + 2;
  }
  if (good) return out;
  return Error{Errc::invalid_argument, fmt::format("'{}' is no UUID of a GPU", text)};
}

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

// A hardened kernel (vm.memfd_noexec=2) wants MFD_NOEXEC_SEAL; those before 6.3 do not know it.
UniqueFd memory_file() {
  constexpr unsigned kHow = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd file(::memfd_create("derate-launches", kHow | MFD_NOEXEC_SEAL));
  return file.valid() ? std::move(file) : UniqueFd(::memfd_create("derate-launches", kHow));
}

Error page_failed(const char* what) {
  return Error{Errc::io,
               fmt::format("cannot {} a page of launches: {}", what, std::strerror(errno))};
}

}  // namespace

Result<LaunchPageWriter> LaunchPageWriter::create(const std::string& uuid) {
  const auto bytes = TRY(uuid_bytes(uuid));
  UniqueFd file = memory_file();
  if (!file.valid() || ::ftruncate(file.get(), sizeof(derate_launch_page)) != 0)
    return page_failed("make");
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return page_failed("seal");
  const auto page = std::make_unique<derate_launch_page>();
  std::memcpy(page->magic, DERATE_LAUNCH_MAGIC, sizeof page->magic);
  page->size = sizeof *page;
  page->rows = DERATE_LAUNCH_ROWS;
  page->pid = ::getpid();
  std::copy(bytes.begin(), bytes.end(), page->rows_of[0].uuid);
  page->rows_of[0].used = DERATE_ROW_COUNTS;
  if (::pwrite(file.get(), page.get(), sizeof *page, 0) != ssize_t{sizeof *page})
    return page_failed("write");
  return LaunchPageWriter(std::move(file));
}

Result<void> LaunchPageWriter::write(const LaunchCounts& counts, std::uint64_t collective) {
  derate_launch_row row{};
  constexpr std::size_t kLast = std::size(derate_launch_row{}.kernels) - 1;
  std::size_t next = 0;
  for (const auto& [id, count] : counts) {
    const bool room = next < kLast;
    derate_launch_kernel& kernel = row.kernels[room ? next++ : kLast];
    kernel.id = room ? id : 0;
    kernel.launches += count;
    if (room && id != 0 && id == collective) kernel.blocks = DERATE_LAUNCH_COLLECTIVE;
  }
  const off_t place = offsetof(derate_launch_page, rows_of) + offsetof(derate_launch_row, kernels);
  if (::pwrite(file_.get(), row.kernels, sizeof row.kernels, place) != ssize_t{sizeof row.kernels})
    return page_failed("write");
  return {};
}

}  // namespace derate
