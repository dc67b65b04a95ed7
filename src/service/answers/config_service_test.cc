#include "service/answers/config_service.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/json.h"
#include "base/test_folder.h"
#include "base/text.h"
#include "config/setting_list.h"
#include "govern/fleet/policy_choice.h"
#include "service/answers/request_desk.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// A daemon's part that concerns its settings, over files of its own.
struct Daemon {
  explicit Daemon(const std::string& text = "") {
    write("derate.toml", text);
    settings = *load_settings(file);
  }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(drops);
    ASSERT_TRUE(write_file_atomically(folder.file(name), text).ok());
  }
  ConfigService& service() {
    if (!made)
      made.emplace(
          clock, desk.operators,
          ConfigServiceOptions{.source = config_source(file),
                               .in_force = [this]() -> const Settings& { return settings; },
                               .reload = [this](const Settings& now) { reload(now); },
                               .warnings_of = warnings_of,
                               .audit = AuditLog(folder.file("audit.jsonl"))});
    return *made;
  }
  Json ask(const Json& request) {
    (void)service();
    RequestLines& lines = desk.operator_lines;
    auto answer = lines.handle(json_text(request), Peer{.pid = 7, .uid = 3, .connection = 1});
    if (!answer) {
      desk.queue.do_round();
      desk.queue.answer_round();
      answer = lines.take_late().at(0).second;
    }
    return parse_json(*answer);
  }
  Json set(const std::vector<std::string>& words, const std::vector<std::string>& gone = {},
           bool dry_run = false) {
    return ask({{"command", "config-set"}, {"set", words}, {"unset", gone}, {"dry_run", dry_run}});
  }
  std::string set_file() const {
    const auto text = read_file(drops + "/90-set.toml");
    return text.ok() ? *text : "";
  }
  // Without its head.
  std::string said() const {
    const std::string text = set_file();
    return text.empty() ? "" : text.substr(text.find("\n\n") + 2);
  }

  Folder folder;
  std::string file = folder.file("derate.toml"), drops = file + ".d";
  FakeClock clock;
  Settings settings;
  int reloads = 0;
  std::function<void(const Settings&)> reload = [this](const Settings& now) {
    settings = now;
    ++reloads;
  };
  std::function<std::vector<std::string>(const Settings&)> warnings_of = {};
  RequestDesk desk{clock, {}};
  std::optional<ConfigService> made;
};

TEST(ConfigService, SetIsTakenInAndKept) {
  Daemon daemon("[safety]\nidle_after_s = 2\n");
  const Json answer = daemon.set({"safety.idle_after_s=3", "governor.policy=max-freq"});
  EXPECT_EQ(answer["ok"], true) << answer;
  EXPECT_EQ(answer["message"],
            "it is set: 2 settings have changed: governor.policy, safety.idle_after_s");
  EXPECT_EQ(json_text(answer["changes"][1]),
            R"({"key":"safety.idle_after_s","before":"2","after":"3","at_start":false})");
  EXPECT_EQ(daemon.settings.idle.after_s, 3);
  EXPECT_EQ(daemon.reloads, 1);
  EXPECT_EQ(daemon.said(), "[governor]\npolicy = \"max-freq\"\n\n[safety]\nidle_after_s = 3\n");
  EXPECT_NE(daemon.set_file().find("# Last set by uid 3 at "), std::string::npos);
  struct stat found {};
  ASSERT_EQ(::stat((daemon.drops + "/90-set.toml").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0644u);
  EXPECT_EQ(load_settings(daemon.file)->policy, "max-freq");
  // Where it is said is where the file says it.
  const Json shown = daemon.ask({{"command", "config-show"}});
  for (const Json& each : shown["settings"]) {
    const bool is_it = each["key"] == "safety.idle_after_s";
    EXPECT_EQ(each.value("where", ""), is_it ? daemon.drops + "/90-set.toml:8:16"
                                       : each["key"] == "governor.policy"
                                           ? daemon.drops + "/90-set.toml:5:10"
                                           : "");
  }
  EXPECT_EQ(load_settings(daemon.file)->where, daemon.settings.where);
  const std::string audit = *read_file(daemon.folder.file("audit.jsonl"));
  EXPECT_NE(audit.find(R"("what":"setting safety.idle_after_s","before":"2","after":"3",)"
                       R"("why":"config-set by uid 3")"),
            std::string::npos)
      << audit;
}

TEST(ConfigService, WhatIsNotValidAsAWholeChangesNothing) {
  Daemon daemon("[safety]\nexpire_after_s = 2\n[api]\nusers = \"root\"\n");
  ASSERT_EQ(daemon.set({"governor.gpus=0"})["ok"], true);
  const std::string before = daemon.set_file();
  const auto refused = [&](const std::vector<std::string>& set,
                           const std::vector<std::string>& unset = {}) {
    const Json answer = daemon.set(set, unset);
    EXPECT_EQ(answer["ok"], false) << answer;
    return answer.value("error", "");
  };
  EXPECT_EQ(refused({"governor.dry_run=true", "safety.stale_after_s=3"}),
            daemon.file + ":2:18: expire_after_s 2: must not be less than stale_after_s 3");
  // Of its own file, which is not written, no line is named.
  EXPECT_TRUE(refused({"governor.policy=asure"}).starts_with("governor.policy: "));
  EXPECT_EQ(daemon.set({"governor.policy=asure"})["code"], "invalid_argument");
  EXPECT_NE(refused({"policy.assure.delte=0.1"}).find("did you mean"), std::string::npos);
  EXPECT_NE(refused({"attribute.method=x"}).find("attribute.method"), std::string::npos);
  EXPECT_NE(refused({"governor.dry_runn=true"}).find("did you mean 'governor.dry_run'?"),
            std::string::npos);
  EXPECT_EQ(refused({}, {"governor.policy"}),
            "governor.policy: was not set by `derate config set`");
  EXPECT_EQ(refused({}), "config-set: nothing to set or to unset");
  // Another file is wrong: what is in force stays in force, and is not half exchanged.
  daemon.write("derate.toml.d/10-a.toml", "[governor]\ndry_run = 1\n");
  EXPECT_NE(refused({"governor.gpus=1"}).find("10-a.toml:2:11"), std::string::npos);
  EXPECT_EQ(daemon.set_file(), before);
  EXPECT_EQ(daemon.reloads, 1);
  EXPECT_EQ(daemon.settings.gpus, "0");
}

TEST(ConfigService, ALaterFileIsNotSilentlyStronger) {
  Daemon daemon;
  daemon.write("derate.toml.d/99-site.toml", "[governor]\ngpus = \"1\"\n");
  EXPECT_EQ(daemon.set({"governor.gpus=0"})["error"],
            "governor.gpus: " + daemon.drops +
                "/99-site.toml:2:8 comes after 90-set.toml and says "
                "\"1\"");
  EXPECT_EQ(daemon.set_file(), "");
  daemon.write("derate.toml.d/10-site.toml", "[governor]\ndry_run = true\n");
  EXPECT_EQ(daemon.set({"governor.dry_run=false"})["ok"], true);
  EXPECT_FALSE(daemon.settings.dry_run);
}

TEST(ConfigService, ADryRunWritesNothing) {
  Daemon daemon;
  const Json answer = daemon.set({"safety.idle_after_s=3", "attribute.pod_resources="}, {}, true);
  EXPECT_EQ(answer["message"],
            "nothing is written: 2 settings have changed: safety.idle_after_s, "
            "attribute.pod_resources; at the next start: attribute.pod_resources");
  EXPECT_EQ(daemon.set_file(), "");
  EXPECT_EQ(daemon.reloads, 0);
  EXPECT_FALSE(std::filesystem::exists(daemon.folder.file("audit.jsonl")));
  EXPECT_EQ(daemon.set({"safety.idle_after_s=0"}, {}, true)["ok"], false);
}

TEST(ConfigService, WhatIsSetAlreadyIsSaid) {
  Daemon daemon;
  ASSERT_EQ(daemon.set({"governor.gpus=0"})["ok"], true);
  const std::string before = daemon.set_file();
  daemon.clock.advance(1h);
  EXPECT_EQ(daemon.set({"governor.gpus=0"})["message"], "it was set already: nothing has changed");
  EXPECT_EQ(daemon.set_file(), before);  // with its time
}

// What cannot be governed any more is said, also before it is done; what could not be before is
// not.
TEST(ConfigService, SaysWhatCannotBeGovernedAnyMore) {
  Daemon daemon;
  daemon.warnings_of = [](const Settings& settings) {
    std::vector<std::string> out{"GPU 7 is not governed: as ever"};
    if (settings.lowest_clock_mhz) out.push_back("GPU 0 is not governed: no such clock");
    return out;
  };
  const Json warnings = {"GPU 0 is not governed: no such clock"};
  EXPECT_EQ(daemon.set({"envelope.lowest_clock_mhz=1"}, {}, true)["warnings"], warnings);
  EXPECT_EQ(daemon.set({"envelope.lowest_clock_mhz=1"})["warnings"], warnings);
  EXPECT_EQ(daemon.set({"safety.idle_after_s=3"})["warnings"], Json::array());
  EXPECT_EQ(daemon.set({}, {"envelope.lowest_clock_mhz"})["warnings"], Json::array());
  daemon.write("derate.toml", "[envelope]\nlowest_clock_mhz = 1\n");
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["warnings"], warnings);
  EXPECT_EQ(
      *daemon.service().reload(),
      "the configuration is reloaded: 1 setting has changed: envelope.lowest_clock_mhz; GPU 0 "
      "is not governed: no such clock");
}

// A set that is unset again leaves the file as it was, and none where there was none.
RC_GTEST_PROP(ConfigService, UnsetTakesBackWhatSetDid, (bool there)) {
  Daemon daemon;
  if (there) RC_ASSERT(daemon.set({"governor.gpus=0"})["ok"] == true);
  const std::string before = daemon.said();
  const Settings settings = daemon.settings;
  const auto word = *rc::gen::element<std::string>(
      "safety.idle_after_s=3", "api.users=root", "policy.geepafs.delta=0.05", "history.most_mb=99");
  RC_ASSERT(daemon.set({word})["ok"] == true);
  RC_ASSERT(daemon.said() != before);
  RC_ASSERT(daemon.set({}, {word.substr(0, word.find('='))})["ok"] == true);
  RC_ASSERT(daemon.said() == before);
  RC_ASSERT(setting_changes(settings, daemon.settings).empty());
  RC_ASSERT(daemon.settings.where == settings.where);
  RC_ASSERT(std::filesystem::exists(daemon.drops + "/90-set.toml") == there);
}

// Killed after the file was renamed and before it was taken in.
TEST(ConfigService, AKillBetweenWritingAndTakingInLeavesAValidFile) {
  Daemon daemon("[governor]\ngpus = \"0\"\n");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    daemon.reload = [](const Settings&) { ::_exit(7); };
    daemon.set({"governor.gpus=1"});
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  const auto next = load_settings(daemon.file);
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(next->gpus, "1");
}

TEST(ConfigService, WhatCannotBeWrittenIsNotTakenIn) {
  Daemon daemon;
  // A file where the folder would be.
  ASSERT_EQ(std::filesystem::remove(daemon.drops), true);
  ASSERT_TRUE(write_file_atomically(daemon.drops, "").ok());
  EXPECT_EQ(daemon.set({"governor.gpus=1"})["ok"], false);
  EXPECT_EQ(daemon.reloads, 0);
  EXPECT_EQ(daemon.settings.gpus, "");
}

TEST(ConfigService, DiffTellsWhatAReloadWouldChange) {
  Daemon daemon("[governor]\ngpus = \"0\"\n");
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["message"], "the files say what is in force");
  daemon.write("derate.toml", "# moved down\n\n[governor]\ngpus = \"0\"\n");
  daemon.clock.advance(2s);
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["changes"], Json::array());
  daemon.write("derate.toml", "[governor]\ngpus = \"1\"\n[[job]]\nname = \"a\"\ndelta = 0.1\n");
  // As often as anybody asks, the files are read once a second.
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["changes"], Json::array());
  daemon.clock.advance(2s);
  const Json diff = daemon.ask({{"command", "config-diff"}});
  EXPECT_EQ(diff["message"], "a reload would change governor.gpus, job");
  EXPECT_EQ(diff["changes"][1]["after"], "[{ name = \"a\", delta = 0.1 }]");
  EXPECT_EQ(*daemon.service().reload(),
            "the configuration is reloaded: 2 settings have changed: governor.gpus, job");
  EXPECT_EQ(*daemon.service().reload(), "the configuration is reloaded: nothing has changed");
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["changes"], Json::array());
  daemon.write("derate.toml", "[governor\n");
  daemon.clock.advance(2s);
  EXPECT_EQ(daemon.ask({{"command", "config-diff"}})["code"], "bad_config");
  EXPECT_EQ(daemon.service().reload().error().code, Errc::bad_config);
  EXPECT_EQ(daemon.settings.gpus, "1");
}

TEST(ConfigService, WithoutFilesThereIsNothingToSet) {
  Daemon daemon;
  daemon.made.emplace(
      daemon.clock, daemon.desk.operators,
      ConfigServiceOptions{.source = {},
                           .in_force = [&]() -> const Settings& { return daemon.settings; },
                           .reload = daemon.reload});
  EXPECT_EQ(daemon.service().set({.set = {"governor.gpus=1"}}, "uid 0").error().code,
            Errc::not_supported);
  EXPECT_TRUE(daemon.service().diff().ok());
}

}  // namespace
}  // namespace derate
