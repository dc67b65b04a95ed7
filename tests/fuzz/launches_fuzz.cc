// Any bytes as a page of launches that changes as it is read: what follows is a state or none,
// never a crash, and never more kept than was promised.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "service/workloads/launch_reader.h"
#include "wire/launch_page.h"

namespace {

constexpr std::size_t kRows = offsetof(derate_launch_page, rows_of);

derate::UniqueFd sealed_page() {
  derate::UniqueFd file(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  CHECK(::ftruncate(file.get(), sizeof(derate_launch_page)) == 0);
  CHECK(::pwrite(file.get(), DERATE_LAUNCH_MAGIC, 8, 0) == 8);
  CHECK(::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
  return file;
}

}  // namespace

// The first half of the bytes is the beginning of the rows, then all of them are; the first byte
// says how many rows are in use whatever else stands there.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace derate;
  UniqueFd mine = sealed_page();
  UniqueFd given(::fcntl(mine.get(), F_DUPFD_CLOEXEC, 0));
  auto page = LaunchPage::open(given);
  CHECK(page.ok());
  LaunchReader reader;
  Instant now{};
  reader.add(*std::move(page), PageOwner{{.pid = 7, .uid = 1, .started = 1}}, now);
  const auto rows = std::make_unique<derate_launch_page>();
  for (std::size_t round = 1; round <= 4; ++round) {
    const std::size_t length = std::min(size * round / 4, sizeof rows->rows_of);
    std::memcpy(rows->rows_of, data, length);
    for (std::size_t i = 0; size > 0 && i < data[0] % DERATE_LAUNCH_ROWS; ++i)
      rows->rows_of[i].used = 2;
    CHECK(::pwrite(mine.get(), rows->rows_of, sizeof rows->rows_of, kRows) ==
          ssize_t{sizeof rows->rows_of});
    now += std::chrono::seconds(1);
    const LaunchNews news = reader.read([now] { return now; });
    for (const ProcessLaunches& each : news.rates) CHECK(each.rate.per_second > 0);
    const auto& told = news.progress;
    CHECK(told.size() <= LaunchReader::kMostGpus);
    for (const LaunchProgress& each : told)
      CHECK(!each.state || (each.state->phase > 0 && std::isfinite(each.state->done) &&
                            each.state->unsteadiness <= LaunchPhases::kSteady));
  }
  return 0;
}
