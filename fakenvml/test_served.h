// For tests: served GPUs on a clock of the test's own, in a folder of their own, in this process.
#pragma once

#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/test_folder.h"
#include "fakenvml/sim_client.h"
#include "fakenvml/sim_server.h"

namespace derate::fakenvml {

// A folder that goes with the test, and $DERATE_SIM as long as it is there.
class SimFolder : public Folder {
 public:
  SimFolder() { ::setenv("DERATE_SIM", path().c_str(), 1); }
  ~SimFolder() { ::unsetenv("DERATE_SIM"); }
};

// The server answers on a thread of its own; time passes only by pass().
class Served {
 public:
  explicit Served(std::vector<const SimChip*> chips, std::uint64_t seed = 1,
                  std::optional<std::string> mig = std::nullopt) {
    clock_.advance(std::chrono::hours(1));
    ServerOptions options;
    options.directory = folder_.path();
    options.chips = std::move(chips);
    options.seed = seed;
    options.mig = std::move(mig);
    auto server = SimServer::create(options, clock_);
    CHECK(server.ok());
    server_ = *std::move(server);
    thread_ = std::thread([this] { answer(); });
  }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;
  ~Served() { stop(); }

  void pass(Duration time) {
    const std::scoped_lock lock(mutex_);
    clock_.advance(time);
    if (server_ != nullptr) server_->advance();
  }
  void stop() {
    ending_ = true;
    if (thread_.joinable()) thread_.join();
    server_.reset();
  }
  Instant time() const { return clock_.now(); }
  FakeClock& clock() { return clock_; }
  const std::string& directory() const { return folder_.path(); }
  GpuNow now(unsigned int gpu = 0) const { return *client().state().gpu[gpu].now.read(); }

  // A client of the test's own, for jobs and faults.
  SimClient& client() const {
    if (client_ == nullptr) {
      auto connected = SimClient::connect(folder_.path());
      CHECK(connected.ok());
      client_ = *std::move(connected);
    }
    return *client_;
  }
  Reply ask(const Request& request) const {
    const auto reply = client().ask(request);
    CHECK(reply.has_value());
    return *reply;
  }
  void start_job(std::string_view workload, unsigned int gpu = 0, double work_s = 0,
                 unsigned int instance = 0) const {
    Request request;
    request.op = Op::start_job;
    request.gpu = gpu;
    request.number = work_s;
    request.a = instance;
    put_text(request.name, workload);
    CHECK(ask(request).code == 0);
  }

 private:
  void answer() {
    SystemClock real;
    while (!ending_) {
      {
        const std::scoped_lock lock(mutex_);
        server_->answer(Duration::zero());
      }
      real.sleep_until(real.now() + std::chrono::microseconds(100));
    }
  }

  SimFolder folder_;
  FakeClock clock_;
  std::mutex mutex_;
  std::unique_ptr<SimServer> server_;
  std::thread thread_;
  std::atomic<bool> ending_{false};
  mutable std::unique_ptr<SimClient> client_;
};

}  // namespace derate::fakenvml
