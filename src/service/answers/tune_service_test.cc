#include "service/answers/tune_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <set>

#include "base/json.h"
#include "base/test_folder.h"
#include "service/answers/request_lines.h"
#include "store/tune_store.h"
#include "tune/trial_rows.h"

namespace derate {
namespace {

using namespace std::chrono_literals;
constexpr auto kAtOnce = BackgroundWorker::Where::at_once;

// GPUs that are never tuned, and remember what was asked of them.
struct Hands final : TunedGpus {
  std::vector<std::string> said;
  Result<void> take_for_tuning(const std::string&, const TuningPlan& plan) override {
    said.push_back(std::string("begin ") + to_string(plan.knob) + " " +
                   std::to_string(plan.known.size()));
    return {};
  }
  Result<void> give_back_tuned(const std::string&) override {
    said.emplace_back("end");
    return {};
  }
  Result<void> report_work(const std::string&, const Progress& done) override {
    const auto unit = static_cast<WorkUnit>(done.run);
    said.push_back((unit == WorkUnit::steps ? "steps " : "epochs ") +
                   std::to_string(static_cast<int>(done.done)));
    return {};
  }
  std::optional<TuningState> tuning(const std::string&) const override {
    TuningState state{.what = "150 W", .unit_cost = 2, .highest_unit_cost = 3};
    state.readings = {{150, 1, Watts(140)}, {300, 1.1, Watts(250)}};
    return state;
  }
};

TEST(TuneService, AKnobIsHandedOverForTheTimeOfATrial) {
  FakeClock clock;
  CommandRouter clients;
  RequestLines lines{clients};
  EnergyService energy(clock, clients);
  Hands hands;
  const Folder folder;
  {
    TuneService desk(clock, clients, energy,
                     {.file = folder.file("tune.db"), .gpus = &hands, .where = kAtOnce});
    const GpuId id{.index = 0, .uuid = "GPU-0", .pci_bus_id = {}, .name = "V100"};
    energy.here({id});
    desk.here({{id, "V100", Watts(300)}});
    const auto ask = [&](const Json& request, std::uint32_t uid) {
      return parse_json(*lines.handle(json_text(request), {7, uid, 1}));
    };
    const Json mine = {{"command", "tune-trial-begin"}, {"model", "lm"}};
    // A user's limit is left alone, unless everybody may have it turned.
    Json trial = ask(mine, 1234);
    EXPECT_EQ(trial["knob"],
              "left alone: user 1234 may have none turned ([tune] users = \"root\" in the "
              "configuration)");
    EXPECT_TRUE(hands.said.empty());
    const auto end = [&](std::uint32_t uid) {
      return ask({{"command", "tune-trial-end"},
                  {"trial", trial["trial"]},
                  {"token", trial["token"]},
                  {"outcome", "missed"}},
                 uid);
    };
    ASSERT_TRUE(end(1234)["ok"]);
    desk.rules({.everyone = true});
    for (const char* known : {"0", "2"}) {  // the second run knows what the first has measured
      hands.said.clear();
      trial = ask(mine, 1234);
      EXPECT_EQ(trial["knob"], "150 W");
      const Json view = ask({{"command", "tune-trial-report"},
                             {"trial", trial["trial"]},
                             {"token", trial["token"]},
                             {"epoch", 2},
                             {"steps", 100}},
                            1234);
      EXPECT_EQ(view["epoch_cost_joules"], 100);  // 50 steps an epoch, 2 J each
      ASSERT_TRUE(end(1234)["ok"]);
      const std::vector<std::string> wanted{std::string("begin power-limit ") + known, "steps 100",
                                            "end"};
      EXPECT_EQ(hands.said, wanted);
    }
  }
}

// One user, his process or none, on a GPU whose knob everybody may have turned.
struct Place {
  FakeClock clock;
  CommandRouter clients;
  RequestLines lines{clients};
  EnergyService energy{clock, clients};
  Hands hands;
  std::set<std::pair<std::string, std::uint32_t>> working;
  std::vector<std::string> logged;
  std::string file;  // empty: nothing is kept
  TuneService desk{clock, clients, energy, options()};

  explicit Place(int gpus = 1, std::string kept_in = "") : file(std::move(kept_in)) {
    std::vector<GpuId> ids;
    std::vector<TuneGpu> all;
    for (int i = 0; i < gpus; ++i) {
      ids.push_back(
          {.index = i, .uuid = "GPU-" + std::to_string(i), .pci_bus_id = {}, .name = "V100"});
      all.push_back({ids.back(), "V100", Watts(300)});
    }
    energy.here(ids);
    desk.here(all);
  }
  TuneServiceOptions options() {
    return {.file = file,
            .rules = {.everyone = true, .lease = std::chrono::hours(1)},
            .log = Log([this](const LogRecord& record) { logged.push_back(record.text); }),
            .works_on =
                [this](const std::string& gpu, std::uint32_t uid) {
                  return working.contains({gpu, uid});
                },
            .gpus = &hands};
  }
  Json ask(const Json& request, std::uint32_t uid) {
    return parse_json(*lines.handle(json_text(request), {7, uid, uid}));
  }
  Json begin(std::uint32_t uid, const char* gpus = "0") {
    return ask({{"command", "tune-trial-begin"}, {"gpus", gpus}}, uid);
  }
  Json renew(const Json& trial, std::uint32_t uid) {
    return ask(
        {{"command", "tune-trial-renew"}, {"trial", trial["trial"]}, {"token", trial["token"]}},
        uid);
  }
};

// Nothing is turned before its user works there, and a trial that nobody works for is given up,
// however well its lease is kept.
TEST(TuneDeskWork, ATrialNeedsAProcessOfItsUser) {
  Place place;
  const Json trial = place.begin(1234);
  ASSERT_TRUE(trial["ok"]) << trial;
  EXPECT_EQ(trial["knob"],
            "left alone: until user 1234 has a process on each of the GPUs, for 60 s");
  EXPECT_TRUE(place.hands.said.empty());
  for (int i = 0; i < 59; ++i) {
    place.clock.advance(1s);
    place.desk.step();
    EXPECT_TRUE(place.renew(trial, 1234)["ok"]);
  }
  place.working = {{"GPU-0", 1234}};
  place.desk.step();
  EXPECT_EQ(place.hands.said, std::vector<std::string>{"begin power-limit 0"});
  EXPECT_EQ(place.renew(trial, 1234)["knob"], "150 W");
  place.clock.advance(1h - 1s);
  place.desk.step();
  place.working.clear();
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(place.renew(trial, 1234)["ok"]) << i;
    place.clock.advance(1s);
    place.desk.step();
  }
  EXPECT_EQ(place.hands.said, (std::vector<std::string>{"begin power-limit 0", "end"}));
  EXPECT_FALSE(place.renew(trial, 1234)["ok"]);
  EXPECT_EQ(place.logged,
            std::vector<std::string>{"trial 1 (lost): user 1234 had no process on each "
                                     "of its GPUs for 60 s"});
}

TEST(TuneDeskWork, EachOfItsGpusCounts) {
  Place place(2);
  place.working = {{"GPU-0", 1234}, {"GPU-1", 99}};
  const Json trial = place.begin(1234, "0,1");
  place.clock.advance(60s);
  place.desk.step();
  EXPECT_FALSE(place.renew(trial, 1234)["ok"]);
}

// Of GPUs that are not open nobody knows who works there.
TEST(TuneDeskWork, APauseGivesNobodyUp) {
  Place place;
  place.working = {{"GPU-0", 1234}};
  const Json trial = place.begin(1234);
  place.working.clear();
  place.desk.release_gpus();
  place.desk.here({});
  place.clock.advance(10min);
  place.desk.step();
  EXPECT_TRUE(place.renew(trial, 1234)["ok"]);
}

TEST(TuneDeskWork, RootNeedsNone) {
  Place place;
  const Json trial = place.begin(0);
  EXPECT_EQ(trial["knob"], "150 W");
  place.clock.advance(10min);
  place.desk.step();
  EXPECT_TRUE(place.renew(trial, 0)["ok"]);
}

// Who works on a GPU is not kept from it by who does not.
TEST(TuneDeskWork, WhoWorksThereGoesFirst) {
  Place place;
  const Json idle = place.begin(1234);
  EXPECT_EQ(place.begin(1235)["code"], "busy");  // works there as little
  place.working = {{"GPU-0", 1000}};
  const Json owner = place.begin(1000);
  EXPECT_TRUE(owner["ok"]) << owner;
  EXPECT_FALSE(place.renew(idle, 1234)["ok"]);
  EXPECT_EQ(place.begin(1234)["code"], "busy");
}

// --- what answers cost ---------------------------------------------------------------------------

TEST(TuneDeskPages, AJobListComesInPages) {
  Place place;
  std::set<std::string> wanted, got;
  for (int i = 0; i < 120; ++i) {
    const Json spec = {{"name", "job" + std::to_string(i)},
                       {"batch_sizes", {8}},
                       {"default", 8},
                       {"target", 1},
                       {"max_epochs", 2}};
    ASSERT_TRUE(place.ask({{"command", "tune-job-create"}, {"spec", spec}}, 0)["ok"]);
    wanted.insert(spec["name"].get<std::string>());
  }
  Json request = {{"command", "tune-job-list"}};
  int pages = 0;
  while (true) {
    const Json page = place.ask(request, 1234);
    ASSERT_TRUE(page["ok"]) << page;
    EXPECT_LE(page["jobs"].size(), 50u);
    ++pages;
    for (const Json& job : page["jobs"]) got.insert(job["spec"]["name"].get<std::string>());
    if (!page.contains("more_after")) break;
    request["after"] = page["more_after"];
  }
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(got, wanted);
}

TEST(TuneDeskPages, AHistoryComesInPages) {
  Place place;
  const Json spec = {
      {"name", "a"}, {"batch_sizes", {8}}, {"default", 8}, {"target", 1}, {"max_epochs", 2}};
  ASSERT_TRUE(place.ask({{"command", "tune-job-create"}, {"spec", spec}}, 0)["ok"]);
  for (int i = 0; i < 130; ++i) {
    const Json trial = place.ask({{"command", "tune-trial-begin"}, {"job", "a"}}, 0);
    ASSERT_TRUE(trial["ok"]) << trial;
    ASSERT_TRUE(place.ask({{"command", "tune-trial-end"},
                           {"trial", trial["trial"]},
                           {"token", trial["token"]},
                           {"outcome", "lost"}},
                          0)["ok"]);
  }
  std::vector<std::int64_t> got;
  Json request = {{"command", "tune-job-show"}, {"job", "a"}};
  while (true) {
    const Json page = place.ask(request, 1234);
    ASSERT_TRUE(page["ok"]) << page;
    EXPECT_LE(page["history"].size(), 50u);
    EXPECT_EQ(page["job"]["trials"], 130);
    for (auto trial = page["history"].rbegin(); trial != page["history"].rend(); ++trial)
      got.push_back((*trial)["trial"]);
    if (!page.contains("more_before")) break;
    request["before"] = page["more_before"];
  }
  std::vector<std::int64_t> wanted;
  for (std::int64_t id = 130; id > 0; --id) wanted.push_back(id);
  EXPECT_EQ(got, wanted);
}

// A spec has more room than other requests, and no request has many keys or levels.
TEST(TuneDeskPages, RequestsAreSmall) {
  Place place;
  const auto spec = [](std::size_t blanks) {
    return R"({"command":"tune-job-create","spec":{"name":"a","batch_sizes":[8],"default":8,)"
           R"("target":1,"max_epochs":2}})" +
           std::string(blanks, ' ');
  };
  const auto said = [&](const std::string& text) {
    return parse_json(*place.lines.handle(text, {7, 0, 1}));
  };
  EXPECT_EQ(said(spec(5000))["ok"], true);
  EXPECT_EQ(said(spec(9000))["code"], "invalid_argument");
  EXPECT_EQ(said(R"({"command":"gpus"})" + std::string(3000, ' '))["ok"], true);
  EXPECT_EQ(said(R"({"command":"gpus"})" + std::string(5000, ' '))["error"],
            "gpus: has 5018 bytes, allowed are 4096");
  std::string wide = R"({"command":"gpus")";
  for (int i = 0; i < 300; ++i) wide += ",\"" + std::to_string(i) + "\":1";
  EXPECT_EQ(said(wide + "}")["error"],
            "the request: more than 32 keys or 8 levels: no more are allowed");
}

// Who keeps more than is allowed may still train: the oldest runs go.
TEST(TuneService, AFullFileRefusesNoTraining) {
  constexpr std::uint32_t kUser = 1234;
  const Folder folder;
  const JobSpec job{
      .name = "a", .batch_sizes = {8}, .default_size = 8, .target = 1, .max_epochs = 2};
  TuneChanges rows;
  rows.jobs.push_back({row_of(JobEntry{job, kUser})});
  TuneTrialRow trial{.job = "a", .batch_size = 8, .state = "missed"};
  trial.uid = kUser;
  trial.ended = WallTime{};
  trial.why = std::string(1 << 17, 'w');
  for (int i = 0; i < 150; ++i, ++trial.id, ++trial.recurrence) rows.trials.push_back(trial);
  ASSERT_TRUE(TuneStore(folder.file("tune.db")).write(rows).ok());
  ASSERT_FALSE(check_room(*TuneStore(folder.file("tune.db")).bytes_kept(), kUser).ok());
  {
    Place place(1, folder.file("tune.db"));
    const Json begun =
        place.ask({{"command", "tune-trial-begin"}, {"job", "a"}, {"gpus", "0"}}, kUser);
    EXPECT_EQ(begun["ok"], true) << begun;
    EXPECT_EQ(begun["recurrence"], 150);
  }
  EXPECT_TRUE(check_room(*TuneStore(folder.file("tune.db")).bytes_kept(), kUser).ok());
}

// What a refused report says of its work counts nowhere: not in what an epoch costs.
TEST(TuneService, ARefusedReportChangesNothing) {
  const auto epoch_cost = [](bool with_refused) {
    Place place;
    place.desk.rules({});
    const Json trial = place.begin(1000);
    place.working = {{"GPU-0", 1000}};
    const auto report = [&](double epoch) {
      return place.ask({{"command", "tune-trial-report"},
                        {"trial", trial["trial"]},
                        {"token", trial["token"]},
                        {"epoch", epoch}},
                       1000);
    };
    place.clock.advance(10s);
    if (with_refused) {
      EXPECT_FALSE(report(2e9)["ok"]);
    }
    place.clock.advance(10s);
    EXPECT_TRUE(report(1)["ok"]);
    place.clock.advance(20s);
    return report(3)["epoch_cost_joules"].get<double>();
  };
  EXPECT_GT(epoch_cost(false), 0);
  EXPECT_EQ(epoch_cost(true), epoch_cost(false));
}

// A file that cannot be written is told of once, and gets what it missed when it can.
TEST(TuneService, WhatCouldNotBeWrittenIsWrittenLater) {
  FakeClock clock;
  const Folder folder;
  const std::string later = folder.file("later"), file = later + "/tune.db";
  ASSERT_EQ(::close(::creat(later.c_str(), 0600)), 0);  // no folder yet
  std::vector<std::string> logged;
  const Log log([&](const LogRecord& record) { logged.push_back(record.text); });
  const auto names = [&](const char* more) {
    CommandRouter clients;
    RequestLines lines{clients};
    EnergyService energy(clock, clients);
    TuneService desk(clock, clients, energy, {.file = file, .log = log, .where = kAtOnce});
    for (std::string name = "a"; name <= "c" && *more != 0; ++name[0]) {
      if (name == more) std::filesystem::remove(later);
      const Json spec = {
          {"name", name}, {"batch_sizes", {8}}, {"default", 8}, {"target", 1}, {"max_epochs", 2}};
      const Json request = {{"command", "tune-job-create"}, {"spec", spec}};
      EXPECT_TRUE(parse_json(*lines.handle(json_text(request), {7, 0, 1}))["ok"]);
      for (int round = 0; round < 3; ++round) desk.step();
    }
    std::string out;
    for (const auto& [name, job] : desk.book().jobs()) out += name;
    return out;
  };
  EXPECT_EQ(names("c"), "abc");
  EXPECT_EQ(logged.size(), 1u);
  EXPECT_EQ(names(""), "abc");
}

// "steps=100", "epoch=1 metric=0.3", "steps=120" on lines of their own.
TEST(TuneService, EpochsBetweenStepsAreNoCountOfTheWork) {
  FakeClock clock;
  CommandRouter clients;
  RequestLines lines{clients};
  EnergyService energy(clock, clients);
  Hands hands;
  TuneService desk(clock, clients, energy, {.rules = {.everyone = true}, .gpus = &hands});
  const GpuId id{.index = 0, .uuid = "GPU-0", .pci_bus_id = {}, .name = "V100"};
  energy.here({id});
  desk.here({{id, "V100", Watts(300)}});
  const auto ask = [&](const Json& request) {
    return parse_json(*lines.handle(json_text(request), {7, 1234, 1}));
  };
  const Json trial = ask({{"command", "tune-trial-begin"}});
  const Json reports = {{{"epoch", 0.5}},
                        {{"epoch", 1}},
                        {{"steps", 100}},
                        {{"epoch", 2}, {"metric", 0.3}},
                        {{"steps", 120}, {"epoch", 2.5}}};
  for (Json report : reports) {
    report.update(
        {{"command", "tune-trial-report"}, {"trial", trial["trial"]}, {"token", trial["token"]}});
    const Json answer = ask(report);
    ASSERT_TRUE(answer["ok"]) << answer;
  }
  const std::vector<std::string> wanted{"begin power-limit 0", "epochs 0", "epochs 1", "steps 100",
                                        "steps 120"};
  EXPECT_EQ(hands.said, wanted);
}

}  // namespace
}  // namespace derate
