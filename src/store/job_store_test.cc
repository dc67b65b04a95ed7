#include "store/job_store.h"

#include <gtest/gtest.h>

#include "base/test_folder.h"
#include "base/text.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

JobRow a_job(const std::string& number, const std::string& account, WallTime ended) {
  return {.scheduler = "slurm",
          .cluster = "c",
          .job = number,
          .array = "",
          .user = "ada",
          .account = account,
          .partition = "gpu",
          .node = "n1",
          .uid = 4'294'967'293,
          .begun = ended - 60s,
          .ended = ended,
          .energy_joules = 12'345.5,
          .document = R"({"gpus":[]})"};
}

std::vector<std::string> numbers(const Result<std::vector<JobRow>>& rows) {
  std::vector<std::string> out;
  EXPECT_TRUE(rows.ok());
  if (rows.ok())
    for (const JobRow& row : *rows) out.push_back(row.job);
  return out;
}

using Numbers = std::vector<std::string>;

TEST(JobStore, KeepsWhatItWasGiven) {
  const Folder folder;
  JobRow unknown = a_job("8", "", WallTime{2h});
  unknown.energy_joules.reset();
  {
    JobStore store(folder.file());
    ASSERT_TRUE(store.add(a_job("7", "physics", WallTime{1h})).ok());
    ASSERT_TRUE(store.add(unknown).ok());
  }
  EXPECT_EQ(*read_jobs(folder.file(), {}),
            (std::vector<JobRow>{a_job("7", "physics", WallTime{1h}), unknown}));
}

TEST(JobStore, ReadsByTimeJobUserAndAccount) {
  const Folder folder;
  JobStore store(folder.file());
  ASSERT_TRUE(store.add(a_job("7", "physics", WallTime{3h})).ok());
  ASSERT_TRUE(store.add(a_job("8", "biology", WallTime{2h})).ok());
  ASSERT_TRUE(store.add(a_job("7", "biology", WallTime{1h})).ok());
  const auto found = [&](const JobFilter& filter) {
    return numbers(read_jobs(folder.file(), filter));
  };
  EXPECT_EQ(found({}), (Numbers{"7", "8", "7"}));
  EXPECT_EQ(found({.from = WallTime{2h}, .to = WallTime{3h}}), Numbers{"8"});
  EXPECT_EQ(found({.job = "7"}), (Numbers{"7", "7"}));
  EXPECT_EQ(found({.account = "biology"}), (Numbers{"7", "8"}));
  EXPECT_EQ(found({.user = "eve"}), Numbers{});
  EXPECT_EQ(found({.account = "' OR '1'='1"}), Numbers{});
}

TEST(JobStore, TheOldestGoWhereThereAreTooMany) {
  const Folder folder;
  JobStore store(folder.file(), {}, 3);
  for (int i = 0; i < 10; ++i)
    ASSERT_TRUE(store.add(a_job(std::to_string(i), "a", WallTime{1h * i})).ok());
  EXPECT_EQ(numbers(read_jobs(folder.file(), {})), (Numbers{"7", "8", "9"}));
}

TEST(JobStore, AFileThatIsNotThereOrNotOursIsSaid) {
  const Folder folder;
  EXPECT_EQ(read_jobs(folder.file(), {}).error().code, Errc::not_found);
  ASSERT_TRUE(write_file_atomically(folder.file(), "no database", Durable::no).ok());
  EXPECT_EQ(read_jobs(folder.file(), {}).error().code, Errc::bad_data);
  std::string said;
  JobStore store(folder.file(), [&](const Error& error) { said = error.message; });
  ASSERT_TRUE(store.add(a_job("7", "a", WallTime{1h})).ok());
  EXPECT_NE(said, "");
  EXPECT_EQ(numbers(read_jobs(folder.file(), {})), Numbers{"7"});
}

}  // namespace
}  // namespace derate
