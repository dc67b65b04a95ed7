#include "govern/records_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/test_folder.h"
#include "base/text.h"
#include "base/unique_fd.h"

namespace derate {
namespace {

// A pipe without a reader stands for a disk that does not answer; a wait would fail the test.
TEST(RecordsFile, OnAThreadAFileThatTakesNothingIsNotWaitedFor) {
  const Folder folder;
  const std::string path = folder.file("records");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  const UniqueFd reader(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  ::alarm(30);
  {
    auto file = *RecordsFile::create(path, Instant{});
    file.write_on_a_thread();
    for (int i = 0; i < 500; ++i) ASSERT_TRUE(file.add(Record{}).ok()) << i;
  }
  ::alarm(0);
}

TEST(RecordsFile, OnAThreadTheEndWaitsForWhatIsStillToBeWritten) {
  const Folder folder;
  const std::string path = folder.file("records");
  auto file = *RecordsFile::create(path, Instant{});
  file.write_on_a_thread();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(file.add(Record{}).ok());
  file.finish();
  const std::string text = *read_file(path);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 100);
}

}  // namespace
}  // namespace derate
