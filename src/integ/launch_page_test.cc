#include "integ/launch_page.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include "base/test_folder.h"
#include "wire/launch_page.h"

namespace derate {
namespace {

constexpr int kAll = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

std::unique_ptr<derate_launch_page> empty_page() {
  auto page = std::make_unique<derate_launch_page>();
  std::memcpy(page->magic, DERATE_LAUNCH_MAGIC, sizeof page->magic);
  return page;
}

UniqueFd file_of(const derate_launch_page& page, int seals = kAll) {
  UniqueFd file(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::pwrite(file.get(), &page, sizeof page, 0), static_cast<ssize_t>(sizeof page));
  EXPECT_EQ(::fcntl(file.get(), F_ADD_SEALS, seals), 0);
  return file;
}

TEST(LaunchPage, HasTheSumOfAllThreadsByGpu) {
  auto page = empty_page();
  for (const int row : {0, 16, 17}) {
    std::memset(page->rows_of[row].uuid, row == 17 ? 0xb1 : 0xa0, 16);
    page->rows_of[row].used = 2;
    page->rows_of[row].waits = 1;
    page->rows_of[row].copies = 10;
    page->rows_of[row].kernels[3] = {7, 100, 0};
    page->rows_of[row].kernels[DERATE_LAUNCH_KERNELS - 1] = {0, 5, 0};
  }
  page->rows_of[18].used = 1;  // it is being filled
  page->rows_of[18].kernels[0] = {9, 1, 0};
  auto file = file_of(*page);
  auto opened = LaunchPage::open(file);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto gpus = opened->read();
  ASSERT_TRUE(gpus.ok());
  ASSERT_EQ(gpus->size(), 2u);
  EXPECT_EQ((*gpus)[0].uuid, "GPU-a0a0a0a0-a0a0-a0a0-a0a0-a0a0a0a0a0a0");
  EXPECT_EQ((*gpus)[0].kernels, (LaunchCounts{{0, 10}, {7, 200}}));
  EXPECT_EQ((*gpus)[0].waits, 2u);
  EXPECT_EQ((*gpus)[0].copies, 20u);
  EXPECT_EQ((*gpus)[1].kernels, (LaunchCounts{{0, 5}, {7, 100}}));
}

TEST(LaunchPage, CollectivesAreOfMarkedKernels) {
  auto page = empty_page();
  for (const int row : {0, 16}) {
    page->rows_of[row].used = 2;
    page->rows_of[row].kernels[0] = {7, 100, DERATE_LAUNCH_COLLECTIVE + 2400};
    page->rows_of[row].kernels[1] = {8, 30, 720};
  }
  auto file = file_of(*page);
  const auto gpus = LaunchPage::open(file)->read();
  ASSERT_EQ(gpus->size(), 1u);
  EXPECT_EQ((*gpus)[0].collectives, 200u);
  EXPECT_EQ((*gpus)[0].kernels, (LaunchCounts{{7, 200}, {8, 60}}));
}

TEST(LaunchPage, TellsApartSoManyKernelsOfAGpu) {
  auto page = empty_page();
  for (std::uint64_t row = 0; row < 8; ++row) {
    page->rows_of[row].used = 2;
    for (std::uint64_t i = 0; i < DERATE_LAUNCH_KERNELS; ++i)
      page->rows_of[row].kernels[i] = {1 + row * DERATE_LAUNCH_KERNELS + i, 1, 0};
  }
  auto file = file_of(*page);
  const auto gpus = LaunchPage::open(file)->read();
  ASSERT_EQ(gpus->size(), 1u);
  EXPECT_LE((*gpus)[0].kernels.size(), LaunchPage::kMostKernels + 1);
  std::uint64_t all = 0;
  for (const auto& [id, count] : (*gpus)[0].kernels) all += count;
  EXPECT_EQ(all, 8u * DERATE_LAUNCH_KERNELS);
}

TEST(LaunchPage, RefusesWhatReadingCouldWaitFor) {
  const Folder folder;
  const auto page = empty_page();
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  const UniqueFd other_end(pipe[1]);
  UniqueFd end(pipe[0]);
  EXPECT_FALSE(LaunchPage::open(end).ok());
  EXPECT_TRUE(end.valid());  // who gave it closes it
  const std::string path = folder.file("page");
  UniqueFd on_disk(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_FALSE(LaunchPage::open(on_disk).ok());
  auto loose = file_of(*page, F_SEAL_GROW);
  EXPECT_FALSE(LaunchPage::open(loose).ok());
  UniqueFd none;
  EXPECT_FALSE(LaunchPage::open(none).ok());
}

TEST(LaunchPage, RefusesAnotherSizeAndAnotherVersion) {
  auto page = empty_page();
  page->magic[7] = '9';
  auto file = file_of(*page);
  const auto version = LaunchPage::open(file)->read();
  ASSERT_FALSE(version.ok());
  EXPECT_EQ(version.error().message, "no page of launches: it is of another version");
  UniqueFd small(::memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(::ftruncate(small.get(), 100), 0);
  ASSERT_EQ(::fcntl(small.get(), F_ADD_SEALS, kAll), 0);
  const auto size = LaunchPage::open(small);
  ASSERT_FALSE(size.ok());
  EXPECT_NE(size.error().message.find("it has 100 bytes"), std::string::npos);
}

}  // namespace
}  // namespace derate
