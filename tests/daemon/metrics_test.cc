// Metrics and health of a worker on virtual time: what becomes of a GPU in between takes nothing
// from its counters, and a GPU that is lost is told as lost.
#include "service/metrics/metric_catalogue.h"

#include <gtest/gtest.h>

#include "base/test_exposition.h"
#include "house.h"
#include "service/records/health.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

class MetricsOfAWorker : public testing::Test {
 protected:
  void start() {
    Settings settings;
    settings.govern = true;
    house.work(0, "GeMM");
    house.start(settings);
  }
  // Each scrape is read by another reader than what writes it, and no counter has gone back.
  Exposition scrape() {
    const MetricsOptions options{.format = MetricFormat::openmetrics, .now = house.clock.now()};
    Exposition out =
        read_exposition(metrics_text(*house.worker->board().latest(), options), options.format);
    EXPECT_EQ(out.wrong, "");
    for (const auto& [name, samples] : out.samples) {
      if (!name.ends_with("_total")) continue;
      for (const Exposition::Sample& sample : samples) {
        const auto before = last.find(name, sample.labels);
        if (before.has_value()) {
          EXPECT_GE(sample.value, *before) << name;
        }
      }
    }
    last = out;
    return out;
  }
  Health ready() { return readyz(*house.worker->board().latest(), house.clock.now()); }
  double first(const Exposition& read, const std::string& name) {
    return read.find(name, {{"gpu", "0"}}).value_or(-1);
  }

  House house{2};
  Exposition last;
};

TEST_F(MetricsOfAWorker, AGovernedGpuHasItsCounters) {
  start();
  house.run(90s);
  const double joules = house.sim(0).energy().value();
  const Exposition read = scrape();
  EXPECT_EQ(first(read, "derate_gpu_governed"), 1);
  EXPECT_EQ(first(read, "derate_gpu_up"), 1);
  EXPECT_EQ(first(read, "derate_gpu_promised_performance_ratio"), 0.9);
  EXPECT_NEAR(first(read, "derate_gpu_governed_seconds_total"), 90, 2);
  EXPECT_NEAR(first(read, "derate_gpu_energy_joules_total"), joules, 0.03 * joules);
  EXPECT_GT(first(read, "derate_gpu_writes_total"), 0);
  EXPECT_GT(first(read, "derate_gpu_utilisation_ratio"), 0.5);
  EXPECT_GE(read.find("derate_process_resident_memory_bytes").value_or(0), 1e6);
  EXPECT_TRUE(ready().good) << ready().reason;
}

TEST_F(MetricsOfAWorker, CountersOutliveALostGpuAndAPause) {
  start();
  house.run(30s);
  const double before = first(scrape(), "derate_gpu_energy_joules_total");
  house.trouble(0).faults.gpu_lost = true;
  house.run(20s);
  Exposition read = scrape();
  EXPECT_EQ(first(read, "derate_gpu_lost"), 1);
  EXPECT_EQ(first(read, "derate_gpu_losses_total"), 1);
  EXPECT_EQ(first(read, "derate_gpu_power_watts"), -1);
  EXPECT_TRUE(ready().good);
  EXPECT_NE(ready().reason.find("GPU 0 ("), std::string::npos) << ready().reason;
  house.trouble(0).faults.gpu_lost = false;
  house.run(20s);
  read = scrape();
  EXPECT_EQ(first(read, "derate_gpu_lost"), 0);
  EXPECT_EQ(first(read, "derate_gpu_losses_total"), 1);
  EXPECT_GT(first(read, "derate_gpu_energy_joules_total"), before);

  (void)house.ask(R"({"command":"pause"})");
  house.run(3s);
  read = scrape();
  EXPECT_EQ(first(read, "derate_gpu_up"), 0);
  EXPECT_EQ(first(read, "derate_gpu_lost"), 0);
  EXPECT_EQ(read.find("derate_gpus", {{"state", "closed"}}), 2);
  EXPECT_FALSE(ready().good);
  (void)house.ask(R"({"command":"resume"})");
  house.run(10s);
  read = scrape();
  EXPECT_EQ(first(read, "derate_gpu_up"), 1);
  EXPECT_EQ(read.find("derate_gpus", {{"state", "open"}}), 2);
  EXPECT_TRUE(ready().good) << ready().reason;
}

TEST_F(MetricsOfAWorker, AllLostIsNotReadyAndStuckIsTold) {
  start();
  house.run(5s);
  house.trouble(0).hangs = house.trouble(1).hangs = true;
  house.run(3s);
  EXPECT_EQ(first(scrape(), "derate_gpu_stuck"), 1);
  EXPECT_EQ(first(scrape(), "derate_gpu_stalls_total"), 1);
  house.run(10s);
  EXPECT_FALSE(ready().good);
  EXPECT_NE(ready().reason.find("all GPUs are lost"), std::string::npos) << ready().reason;
  EXPECT_TRUE(livez(*house.worker->board().latest(), house.clock.now()).good);
}

TEST_F(MetricsOfAWorker, TenantsAddUpToTheBoard) {
  house.attribution.where = BackgroundWorker::Where::at_once;
  house.attribution.name = [](const GpuId&, const Tenancy& tenancy, const SaidJobs&) {
    TenantNames out;
    for (const GpuProcess& process : tenancy.processes)
      out.processes.push_back({"pid:" + std::to_string(process.pid), {.user = "alice"}});
    return out;
  };
  for (const int pid : {10, 11}) house.person(0, pid, 1000);
  start();
  house.run(60s);
  (void)scrape();
  house.trouble(0).processes->pop_back();
  house.run(60s);
  const Exposition read = scrape();
  EXPECT_GT(first(read, "derate_gpu_attributed_energy_joules_total"), 110 * 100);
  EXPECT_NEAR(read.sum("derate_tenant_energy_joules_total") +
                  read.sum("derate_gpu_unallocated_energy_joules_total") +
                  read.sum("derate_gpu_ended_tenants_energy_joules_total"),
              read.sum("derate_gpu_attributed_energy_joules_total"), 1e-6);
  EXPECT_EQ(read.find("derate_tenant_info", {{"tenant", "pid:11"}, {"user", "alice"}}), 1);
  EXPECT_FALSE(read.find("derate_tenant_power_watts", {{"tenant", "pid:11"}}));
  EXPECT_TRUE(read.find("derate_tenant_power_watts", {{"tenant", "pid:10"}}));
}

}  // namespace
}  // namespace derate::cli
