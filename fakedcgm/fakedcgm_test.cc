// The real client code over the stand-in library, its socket and its engine.
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "device/dcgm/dcgm_engine.h"
#include "fakedcgm/engine_server.h"
#include "fakenvml/sim_client.h"
#include "fakenvml/sim_server.h"

namespace derate::fakedcgm {

extern const char* const kLibraryPath4;
extern const char* const kLibraryPath3;

namespace {

using namespace std::chrono_literals;

SimChip chip_with_dcgm(const char* name) { return with_dcgm_sensors(**find_sim_chip(name)); }

// Served GPUs and their host engine, in real time, on a thread.
struct EngineBench {
  explicit EngineBench(const SimChip& chip, std::optional<std::string> mig = std::nullopt) {
    fakenvml::ServerOptions options;
    options.directory = folder.path();
    options.chips = {&chip, &chip};
    options.mig = std::move(mig);
    server = *fakenvml::SimServer::create(options, clock);
    thread = std::thread([this] { serve(); });
    client = *fakenvml::SimClient::connect(folder.path());
    start_engine();
  }
  ~EngineBench() {
    ending = true;
    thread.join();
  }

  void start_engine() {
    const std::scoped_lock lock(mutex);
    engine_server.reset();
    engine = std::make_unique<HostEngine>(client->state(), "4.6.0");
    engine_server = *EngineServer::create(address().path, *engine);
  }
  DcgmAddress address() const { return {.host = {}, .port = 0, .path = folder.path() + "/engine"}; }
  std::string uuid(unsigned int gpu) const { return client->state().identity[gpu].uuid; }
  void start_job(unsigned int gpu, unsigned int instance = 0) const {
    fakenvml::Request request;
    request.op = fakenvml::Op::start_job;
    request.gpu = gpu;
    request.a = instance;
    ASSERT_EQ(client->ask(request)->code, 0u);
  }
  void fault(const char* name) {
    const std::scoped_lock lock(mutex);
    EXPECT_EQ(engine->handle(0, {{"op", "faults"}, {name, 1}})["code"], 0);
  }
  // A library's end ends all connections of the process.
  std::unique_ptr<DcgmEngine> connect(const char* path) {
    auto& library = libraries[path];
    if (library == nullptr) library = *DcgmLibrary::load(path);
    return *DcgmEngine::connect(library, address());
  }
  void pass(Duration time) { clock.sleep_until(clock.now() + time); }

  void serve() {
    while (!ending) {
      server->advance();
      server->answer(2ms);
      const std::scoped_lock lock(mutex);
      if (engine_server) engine_server->serve(0ms, clock);
    }
  }

  Folder folder;
  SystemClock clock;
  std::unique_ptr<fakenvml::SimServer> server;
  std::unique_ptr<fakenvml::SimClient> client;
  std::mutex mutex;
  std::unique_ptr<HostEngine> engine;
  std::unique_ptr<EngineServer> engine_server;
  std::map<std::string, std::shared_ptr<const DcgmLibrary>> libraries;
  std::atomic<bool> ending{false};
  std::thread thread;
};

std::optional<DcgmReading> reading_of(DcgmEngine& engine, const std::string& uuid,
                                      std::optional<int> instance = std::nullopt) {
  const auto all = engine.read();
  if (!all.ok()) return std::nullopt;
  for (const DcgmReading& each : *all)
    if (each.uuid == uuid && each.gpu_instance == instance) return each;
  return std::nullopt;
}

bool is_measured(DcgmEngine& engine, const std::string& uuid) {
  const auto newest = engine.measured_at(uuid);
  EXPECT_TRUE(newest.ok()) << (newest.ok() ? "" : newest.error().message);
  return newest.ok() && newest->has_value();
}

TEST(FakeDcgm, BothLibrariesReadWhatEachGpuDoes) {
  const SimChip chip = chip_with_dcgm("A100-SXM4");
  EngineBench bench(chip);
  bench.start_job(1);
  for (const char* library : {kLibraryPath4, kLibraryPath3}) {
    SCOPED_TRACE(library);
    const auto engine = bench.connect(library);
    EXPECT_EQ(engine->version(), "4.6.0");
    ASSERT_TRUE(engine->watch(bench.uuid(0), 100ms).ok());
    ASSERT_TRUE(engine->watch(bench.uuid(1), 100ms).ok());
    bench.pass(900ms);
    const auto idle = reading_of(*engine, bench.uuid(0)), busy = reading_of(*engine, bench.uuid(1));
    ASSERT_TRUE(idle && busy);
    EXPECT_EQ(idle->activity.sm, Fraction(0));
    EXPECT_GT(busy->activity.sm.value().value(), 0.1);
    EXPECT_TRUE(busy->activity.dram && busy->activity.tensor && busy->activity.graphics);
    EXPECT_FALSE(busy->activity.fp32);
  }
}

TEST(FakeDcgm, AnotherClientsMeasurementIsSeenAndEndsWithIt) {
  const SimChip chip = chip_with_dcgm("A100-SXM4");
  EngineBench bench(chip);
  const auto engine = bench.connect(kLibraryPath4);
  {
    const auto other = bench.connect(kLibraryPath4);
    ASSERT_TRUE(other->watch(bench.uuid(0), 100ms).ok());
    bench.pass(600ms);
    EXPECT_TRUE(is_measured(*engine, bench.uuid(0)));
    EXPECT_FALSE(is_measured(*engine, bench.uuid(1)));
  }
  bench.pass(100ms);
  EXPECT_FALSE(is_measured(*engine, bench.uuid(0)));
}

TEST(FakeDcgm, FaultsAreThoseOfDcgm) {
  const SimChip chip = chip_with_dcgm("V100-SXM2");
  EngineBench bench(chip);
  const auto engine = bench.connect(kLibraryPath4);
  bench.fault("taken");
  EXPECT_EQ(engine->watch(bench.uuid(0), 100ms).error().code, Errc::busy);
  bench.fault("no_module");
  EXPECT_EQ(engine->watch(bench.uuid(0), 100ms).error().code, Errc::not_supported);
  bench.fault("paused");
  ASSERT_TRUE(engine->watch(bench.uuid(0), 100ms).ok());
  bench.pass(500ms);
  EXPECT_FALSE(reading_of(*engine, bench.uuid(0)));
  bench.start_engine();
  EXPECT_EQ(engine->read().error().code, Errc::io);
}

TEST(FakeDcgm, InstancesOfMigHaveTheirOwnValues) {
  const SimChip chip = chip_with_dcgm("A100-SXM4");
  EngineBench bench(chip, "3g,2g");
  const auto instances = bench.client->state().gpu[1].instances.read();
  const auto first = instances->list[0].id, second = instances->list[1].id;
  bench.start_job(1, second);
  const auto engine = bench.connect(kLibraryPath4);
  ASSERT_TRUE(engine->watch(bench.uuid(1), 100ms).ok());
  bench.pass(900ms);
  const auto idle = reading_of(*engine, bench.uuid(1), static_cast<int>(first));
  const auto busy = reading_of(*engine, bench.uuid(1), static_cast<int>(second));
  ASSERT_TRUE(idle && busy);
  EXPECT_EQ(idle->activity.sm, Fraction(0));
  EXPECT_GT(busy->activity.sm.value().value(), 0.1);
}

// The socket of an engine that was killed is left behind; a file is somebody's own.
TEST(FakeDcgm, AnEngineTakesNobodysPlace) {
  const Folder folder;
  const std::string path = folder.path() + "/engine";
  std::ofstream(path) << "a file";
  EXPECT_FALSE(listen_at(path).ok());
  EXPECT_EQ(*read_file(path), "a file");
  std::filesystem::remove(path);
  {
    const auto first = listen_at(path);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(listen_at(path).error().code, Errc::busy);
  }
  EXPECT_TRUE(listen_at(path).ok());
  for (const char* bad : {"127.0.0.1:0", "127.0.0.1:x", "127.0.0.1:65536"})
    EXPECT_EQ(connect_to(bad).error().code, Errc::invalid_argument) << bad;
  EXPECT_EQ(listen_at("/" + std::string(200, 'x')).error().code, Errc::invalid_argument);
}

// Anything may stand in a request.
TEST(FakeDcgm, OddRequestsAreRefused) {
  const auto state = std::make_unique<fakenvml::State>();
  HostEngine engine(*state, "3.3.9");
  for (const char* text :
       {"null", "[]", "{}", R"({"op":"watch"})", R"({"op":"watch","group":-1,"microseconds":1})",
        R"({"op":"latest","entities":[[1,7],3,["a","b"]],"fields":[1001,"x"]})",
        R"({"op":"metric_groups","gpu":9})", R"({"op":"faults","no":1})"})
    EXPECT_TRUE(engine.handle(1, parse_json(text)).contains("code")) << text;
}

}  // namespace
}  // namespace derate::fakedcgm
