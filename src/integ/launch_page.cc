#include "integ/launch_page.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>

#include "wire/launch_page.h"

namespace derate {
namespace {

constexpr int kSealed = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

std::string uuid_text(std::span<const std::uint8_t> bytes) {
  std::string out = "GPU-";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += fmt::format("{:02x}", bytes[i]);
  }
  return out;
}

void add_row(const derate_launch_row& row, std::vector<GpuLaunches>& gpus) {
  const std::string uuid = uuid_text(row.uuid);
  auto gpu = std::find_if(gpus.begin(), gpus.end(),
                          [&](const GpuLaunches& each) { return each.uuid == uuid; });
  if (gpu == gpus.end()) {
    gpus.push_back({.uuid = uuid});
    gpu = gpus.end() - 1;
  }
  gpu->waits += row.waits;
  gpu->copies += row.copies;
  for (const derate_launch_kernel& kernel : row.kernels)
    if (kernel.launches > 0) {
      const bool room =
          gpu->kernels.size() < LaunchPage::kMostKernels || gpu->kernels.contains(kernel.id);
      gpu->kernels[room ? kernel.id : 0] += kernel.launches;
      if ((kernel.blocks & DERATE_LAUNCH_COLLECTIVE) != 0) gpu->collectives += kernel.launches;
    }
}

}  // namespace

Result<void> LaunchPage::check(int file) {
  const auto refuse = [](const std::string& why) {
    return Error{Errc::invalid_argument, "no page of launches: " + why};
  };
  struct stat found {};
  const int seals = ::fcntl(file, F_GET_SEALS);
  if (seals < 0) return refuse("it does not lie in memory");
  if ((seals & kSealed) != kSealed) return refuse("it can be cut");
  if (::fstat(file, &found) != 0) return refuse(std::strerror(errno));
  if (found.st_size != sizeof(derate_launch_page))
    return refuse(
        fmt::format("it has {} bytes, {} are needed", found.st_size, sizeof(derate_launch_page)));
  return {};
}

Result<LaunchPage> LaunchPage::open(UniqueFd& file) {
  TRY(check(file.get()));
  struct stat found {};
  (void)::fstat(file.get(), &found);
  return LaunchPage(std::move(file), found.st_ino);
}

Result<std::vector<GpuLaunches>> LaunchPage::read() const {
  const auto page = std::make_unique<derate_launch_page>();
  if (::pread(file_.get(), page.get(), sizeof *page, 0) != sizeof *page)
    return Error{Errc::io, fmt::format("a page of launches: {}", std::strerror(errno))};
  if (std::memcmp(page->magic, DERATE_LAUNCH_MAGIC, sizeof page->magic) != 0)
    return Error{Errc::invalid_argument, "no page of launches: it is of another version"};
  std::vector<GpuLaunches> out;
  for (const derate_launch_row& row : page->rows_of)
    if (row.used == DERATE_ROW_COUNTS) add_row(row, out);
  return out;
}

}  // namespace derate
