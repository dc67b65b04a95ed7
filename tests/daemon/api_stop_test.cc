// What is read for a caller when the daemon stops is read on, by values of its own.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <future>
#include <memory>
#include <vector>

#include "apps/derated/api.h"
#include "config/paths.h"
#include "house.h"
#include "service/http/http_call.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// A history that nobody can read before somebody writes to it: a pipe.
TEST(ApiStop, ReadsThatAreQueuedOutliveTheWorker) {
  House house(1);
  house.history_file = "";
  ::setenv("DERATE_STATE_DIR", (house.folder + "/read").c_str(), 1);
  ASSERT_TRUE(make_folders(house.folder + "/read").ok());
  ASSERT_EQ(::mkfifo(history_file().c_str(), 0600), 0);
  house.start();
  SystemClock real;
  auto clock = std::make_unique<SystemClock>();
  auto api = serve_api({*house.worker, *clock, {}});
  ASSERT_TRUE(api.ok()) << api.error().message;
  const std::weak_ptr<HistoryFailures> failures = house.worker->history().failures();
  std::vector<std::future<Result<HttpResponse>>> calls;
  for (std::size_t i = 0; i < ApiServer::kMostReadingOfOneUser; ++i)
    calls.push_back(std::async(std::launch::async, [at = api_socket()] {
      return http_call(at, {.method = "GET", .target = "/v1/events"}, 20s);
    }));
  while ((*api)->figures().requests < calls.size()) real.sleep_until(real.now() + 1ms);
  api->reset();
  house.worker.reset();
  clock.reset();
  for (auto& each : calls) EXPECT_FALSE(each.get().ok());
  EXPECT_FALSE(failures.expired());  // the jobs have it
  // Each job opens the pipe, finds that it is no database, and says so.
  for (int i = 0; i < 10'000 && !failures.expired(); ++i) {
    const UniqueFd writer(::open(history_file().c_str(), O_WRONLY | O_NONBLOCK));
    real.sleep_until(real.now() + 1ms);
  }
  EXPECT_TRUE(failures.expired());
}

}  // namespace
}  // namespace derate::cli
