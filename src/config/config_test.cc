#include "config/config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <random>

#include "base/test_folder.h"
#include "base/text.h"
#include "config/config_files.h"
#include "config/setting_list.h"
#include "core/job_class.h"

namespace derate {
namespace {

std::string error_of(std::string_view toml) {
  const auto parsed = parse_config(toml, "derate.toml");
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.error().code, Errc::bad_config);
  return parsed.error().message;
}

TEST(Config, AllThatIsWrongInAFileIsSaidAtOnce) {
  EXPECT_EQ(
      error_of("[governor]\npolcy = \"x\"\ndry_run = 1\n[safety]\nstale_after_s = \"soon\"\n"),
      "derate.toml:3:11: dry_run 1: wanted true or false; and "
      "derate.toml:2:9: unknown key 'polcy' in [governor]; did you mean 'policy'? There are: "
      "policy, "
      "gpus, govern, dry_run, on_drift; and "
      "derate.toml:5:17: stale_after_s \"soon\": wanted a number in [0.05, 60] s");
}

TEST(Config, AnEmptyFileIsTheDefaults) {
  const auto settings = *parse_config("", "derate.toml");
  EXPECT_EQ(settings.policy, "assure");
  EXPECT_FALSE(settings.dry_run);
  EXPECT_FALSE(settings.lowest_clock_mhz.has_value());
}

TEST(Config, ReadsEveryKind) {
  const auto s = *parse_config(
      "[governor]\npolicy = \"max-freq\"\ndry_run = true\n[envelope]\nlowest_clock_mhz = 952\n"
      "[safety]\nstale_after_s = 0.5\n[policy.geepafs]\ndelta = 0.05\nprobe_clocks = [952, 1530]\n",
      "derate.toml");
  EXPECT_EQ(s.policy, "max-freq");
  EXPECT_TRUE(s.dry_run);
  EXPECT_EQ(s.lowest_clock_mhz, 952);
  EXPECT_EQ(s.stale_after_s, 0.5);
  ASSERT_EQ(s.policy_settings.size(), 2u);
  EXPECT_EQ(s.policy_settings[1].value, "952,1530");
  EXPECT_EQ(s.policy_settings[1].where, "derate.toml:10:16");
}

TEST(Config, ErrorsNamePlaceValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of("[safety]\nstale_after_s = \"soon\"\n"),
            "derate.toml:2:17: stale_after_s \"soon\": wanted a number in [0.05, 60] s");
  EXPECT_EQ(error_of("[safety]\nstale_after_s = 1e9\n"),
            "derate.toml:2:17: stale_after_s 1000000000: wanted a number in [0.05, 60] s");
  EXPECT_EQ(error_of("[governor]\ndry_run = 1\n"),
            "derate.toml:2:11: dry_run 1: wanted true or false");
  EXPECT_EQ(error_of("[governor]\npolcy = \"x\"\n"),
            "derate.toml:2:9: unknown key 'polcy' in [governor]; did you mean 'policy'? There are: "
            "policy, "
            "gpus, govern, dry_run, on_drift");
  EXPECT_NE(error_of("[gouvernor]\n").find("derate.toml:1:1: unknown section [gouvernor]"),
            std::string::npos);
  EXPECT_NE(error_of("[governor\n").find("derate.toml:1:"), std::string::npos);
  EXPECT_NE(error_of("[policy]\ngeepafs = 3\n").find("[policy.geepafs]"), std::string::npos);
  EXPECT_NE(error_of("[policy.geepafs]\ndelta = true\n").find("derate.toml:2:9"),
            std::string::npos);
  EXPECT_EQ(error_of("[safety]\nstale_after_s = 6\n"),
            "derate.toml:2:17: expire_after_s 5: must not be less than stale_after_s 6");
  EXPECT_NE(error_of("[safety]\nstale_after_s = nan\n").find("wanted a number"), std::string::npos);
  EXPECT_EQ(error_of("[tune]\nusers = \"all\"\n"),
            "derate.toml:2:9: [tune] users \"all\": allowed are \"root\", \"everyone\"");
  EXPECT_EQ(error_of("[api]\nadmins = \"everyone\"\n"),
            "derate.toml:2:10: [api] admins \"everyone\": allowed are \"root\" and a group");
  EXPECT_EQ(error_of("[api]\nagent = \"4294967295\"\n"),
            "derate.toml:2:9: [api] agent \"4294967295\": allowed is a user's name or a number in "
            "[0, 4294967294]");
  EXPECT_EQ(error_of("[metrics]\ntenants = 1.5\n"),
            "derate.toml:2:11: tenants 1.5: wanted an integer in [1, 1024]");
  EXPECT_NE(error_of("governor = 3\n").find("wanted a section"), std::string::npos);
}

TEST(Config, LettersBeyondAsciiStandInCommentsOnly) {
  EXPECT_TRUE(parse_config("# für später\n[governor] # é\n", "derate.toml").ok());
  EXPECT_EQ(error_of("[governor]\npolicy = \"é\"\n"),
            "derate.toml:2:11: a letter beyond ASCII: only comments may have them");
  EXPECT_FALSE(parse_config("é = 1\n", "derate.toml").ok());
  EXPECT_FALSE(parse_config("[governor]\ngpus = \"#\" é\n", "derate.toml").ok());
}

TEST(Config, KeysThatNeedQuotesPrintWithThem) {
  const auto settings = *parse_config("[policy.\"a b\"]\n\"\" = 1\n", "derate.toml");
  const auto back = *parse_config(print_config(settings), "printed");
  ASSERT_EQ(back.policy_settings.size(), 1u);
  EXPECT_EQ(back.policy_settings[0].policy, "a b");
  EXPECT_EQ(back.policy_settings[0].name, "");
  EXPECT_NE(error_of("[policy.geepafs]\nprobe_clocks = []\n").find("an empty list"),
            std::string::npos);
}

TEST(Config, JobsKeepTheirOrder) {
  const auto s = *parse_config(
      "[promise]\nmax_delta = 0.2\n[[job]]\nname = \"z\"\nprocess = \"python*\"\n"
      "class = \"batch\"\n[[job]]\nname = \"a\"\nuser = \"ann\"\ndelta = 0.02\n",
      "derate.toml");
  EXPECT_EQ(s.max_delta, 0.2);
  ASSERT_EQ(s.jobs.size(), 2u);
  EXPECT_EQ(s.jobs[0].name, "z");
  EXPECT_EQ(s.jobs[0].job_class, "batch");
  EXPECT_EQ(s.jobs[0].delta, std::nullopt);
  EXPECT_EQ(s.jobs[1].delta, 0.02);
  EXPECT_EQ(s.jobs[1].where, "derate.toml:7:1");
  const auto back = *parse_config(print_config(s), "printed");
  ASSERT_EQ(back.jobs.size(), 2u);
  EXPECT_EQ(back.jobs[0].process, "python*");
  EXPECT_EQ(back.jobs[1].user, "ann");
  EXPECT_EQ(print_config(back), print_config(s));
}

// Each setting alone concerns whom it is declared for; what is new concerns all until it is
// declared.
TEST(Config, AChangedSettingConcernsItsScope) {
  const Settings before;
  EXPECT_TRUE(changed_scopes(before, before).empty());
  std::size_t count = 0;
  visit_settings(before, [&](const SettingInfo&, const auto&) { ++count; });
  for (std::size_t i = 0; i < count; ++i) {
    Settings after;
    std::size_t at = 0;
    Scope scope{};
    visit_settings(after, [&](const SettingInfo& info, auto& value) {
      if (at++ != i) return;
      scope = info.scope;
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, bool>)
        value = !value;
      else if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>)
        value += "x";
      else
        value = 7;
    });
    EXPECT_EQ(changed_scopes(before, after), std::set<Scope>{scope});
  }
  Settings jobs, policies;
  jobs.jobs.push_back({"a", "", "", "batch", {}, ""});
  policies.policy_settings.push_back({"geepafs", "delta", "0.05", ""});
  EXPECT_EQ(changed_scopes(before, jobs), std::set<Scope>{Scope::service});
  EXPECT_EQ(changed_scopes(before, policies), std::set<Scope>{Scope::assignment});
  constexpr SettingInfo undeclared{"a", "b", "", ""};
  static_assert(undeclared.scope == Scope::governor);
}

TEST(Config, EveryClassIsNamed) {
  const JobSetting none;
  visit_job(none, [](const SettingInfo& info, const auto&) {
    if (std::string_view(info.key) != "class") return;
    for (const JobClass& one : job_classes())
      EXPECT_NE(std::string_view(info.summary).find(one.name), std::string_view::npos);
  });
}

TEST(Config, JobsThatPromiseNothingAreRefused) {
  EXPECT_EQ(error_of("[[job]]\ndelta = 0.1\n"), "derate.toml:1:1: a [[job]] without a name");
  EXPECT_EQ(error_of("[[job]]\nname = \"a\"\n"),
            "derate.toml:1:1: job \"a\": wanted a class or a delta");
  EXPECT_EQ(error_of("[[job]]\nname = \"a\"\nclass = \"fun\"\n"),
            "derate.toml:1:1: class \"fun\": allowed are training, inference, batch");
  EXPECT_EQ(error_of("[[job]]\nname = \"a\"\ndelta = 0.4\n"),
            "derate.toml:1:1: delta 0.4: must not be above max_delta 0.3");
  EXPECT_EQ(error_of("[[job]]\nname = \"a\"\nuid = 3\n"),
            "derate.toml:3:7: unknown key 'uid' in [[job]]; there are name, user, process, class, "
            "delta");
  EXPECT_NE(error_of("[job]\nname = \"a\"\n").find("wanted entries like [[job]]"),
            std::string::npos);
}

std::string service_with(const std::string& lines) {
  return "[[service]]\nname = \"chat\"\nmetrics = \"http://127.0.0.1:8000/metrics\"\n" + lines;
}

TEST(Config, AServiceHasAnAddressAPromiseAndGpus) {
  const auto settings =
      parse_config(service_with("promise = [\"itl p99 <= 50 ms\"]\nunit = \"vllm.service\"\n"
                                "most_running = 256\nitl_metric = \"my_itl_seconds\"\n"),
                   "derate.toml");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  const ServiceSetting& service = settings->services.at(0);
  EXPECT_EQ(service.unit, "vllm.service");
  EXPECT_EQ(service.promise, std::vector<std::string>{"itl p99 <= 50 ms"});
  EXPECT_EQ(service.most_running, 256);
  EXPECT_EQ(service.names.between_tokens, "my_itl_seconds");
  const auto back = parse_config(print_config(*settings), "printed");
  ASSERT_TRUE(back.ok()) << back.error().message;
  ServiceSetting printed = back->services.at(0);
  printed.where = service.where;
  EXPECT_EQ(printed, service);
  EXPECT_EQ(changed_scopes(Settings{}, *settings), std::set<Scope>{Scope::service});
}

TEST(Config, AServiceThatCannotBeIsRefused) {
  const auto wrong = [](const std::string& lines) { return error_of(service_with(lines)); };
  const std::string at = "derate.toml:1:1: ";
  EXPECT_EQ(wrong(""), at + "service \"chat\": it has no GPUs: wanted gpus, process, unit, "
                            "container or user");
  EXPECT_NE(wrong("gpus = \"0\"\nprocess = \"vllm\"\n").find("gpus says which GPUs it has"),
            std::string::npos);
  EXPECT_NE(wrong("gpus = \"0\"\npromise = [\"ttft p99 <= 1 s\"]\n").find("first tokens"),
            std::string::npos);
  EXPECT_NE(wrong("gpus = \"0\"\npromise = [\"itl p99 <= 50 ms\", \"itl p50 <= 30 ms\"]\n")
                .find("2 promises: allowed is one"),
            std::string::npos);
  EXPECT_NE(wrong("container = \"abc\"\n").find("12 to 64 digits"), std::string::npos);
  EXPECT_NE(error_of("[[service]]\nname = \"a b\"\nmetrics = \"http://a/\"\n").find("name"),
            std::string::npos);
  for (const char* url : {"https://127.0.0.1/metrics", "file:///etc/passwd", "127.0.0.1:8000", ""})
    EXPECT_NE(error_of(std::string("[[service]]\nname = \"a\"\ngpus = \"0\"\nmetrics = \"") + url +
                       "\"\n")
                  .find("http://HOST"),
              std::string::npos)
        << url;
  EXPECT_NE(error_of(service_with("gpus = \"0\"\n") + service_with("gpus = \"1\"\n"))
                .find("it is there twice"),
            std::string::npos);
}

std::string job_of(const std::string& user) {
  return "[[job]]\nname = \"a\"\nclass = \"batch\"\nuser = \"" + user + "\"\n";
}

// --- several files -------------------------------------------------------------------------------

// What is said, wherever it is said.
std::vector<std::string> values_of(const Settings& settings) {
  std::vector<std::string> out;
  for (const SettingEntry& each : list_settings(settings))
    out.push_back(each.key + "=" + each.value);
  return out;
}

std::string some_value(const std::string&) {
  return "\"" + *rc::gen::element<std::string>("root", "everyone", "0,1", "assure") + "\"";
}
std::string some_value(bool) { return *rc::gen::arbitrary<bool>() ? "true" : "false"; }
std::string some_value(int) { return std::to_string(*rc::gen::inRange(1, 100)); }
std::string some_value(double) { return fmt::format("{}", *rc::gen::inRange(20, 60) / 4.0); }
std::string some_value(const std::optional<double>&) { return some_value(1.0); }

// Settings of all kinds, each as a file of its own would have it. They need not go together.
std::vector<std::string> some_parts() {
  std::vector<std::string> out;
  const Settings defaults;
  visit_settings(defaults, [&](const SettingInfo& info, const auto& value) {
    if (*rc::gen::inRange(0, 3) != 0) return;
    const std::string part =
        fmt::format("[{}]\n{} = {}\n", info.section, info.key, some_value(value));
    const ConfigFile file{"part", part};
    if (read_configs({&file, 1}).ok()) out.push_back(part);
  });
  for (const char* policy : {"assure", "geepafs", "a b"})
    for (const char* name : {"delta", "tick", "x y"})
      if (*rc::gen::arbitrary<bool>())
        out.push_back(fmt::format("[policy.\"{}\"]\n\"{}\" = {}\n", policy, name,
                                  *rc::gen::inRange(1, 9) / 8.0));
  return out;
}

std::vector<ConfigFile> as_files(const std::vector<std::string>& texts) {
  std::vector<ConfigFile> out;
  for (const std::string& text : texts) out.push_back({fmt::format("{}.toml", out.size()), text});
  return out;
}

// Wherever settings stand, they are the same: said in one file or in several, in any order.
RC_GTEST_PROP(ConfigFiles, SettingsMayBeSplitOverFiles, ()) {
  const auto parts = some_parts();
  const auto each = read_configs(as_files(parts));
  RC_ASSERT(each.ok());
  const ConfigFile one{"one.toml", print_said(*each)};
  const auto together = read_configs({&one, 1});
  RC_ASSERT(together.ok());
  RC_ASSERT(values_of(*together) == values_of(*each));
  auto mixed = parts;
  std::shuffle(mixed.begin(), mixed.end(), std::mt19937(*rc::gen::arbitrary<unsigned>()));
  RC_ASSERT(values_of(*read_configs(as_files(mixed))) == values_of(*each));
  RC_ASSERT(print_said(*read_configs(as_files(mixed))) == print_said(*each));
}

// Whatever came before, the last file has its word.
RC_GTEST_PROP(ConfigFiles, ALaterFileWins, ()) {
  const auto before = some_parts(), after = some_parts();
  auto all = before;
  all.insert(all.end(), after.begin(), after.end());
  const auto last = *read_configs(as_files(after)), both = *read_configs(as_files(all));
  for (const SettingEntry& each : list_settings(last))
    if (!each.where.empty())
      for (const SettingEntry& other : list_settings(both))
        if (other.key == each.key) RC_ASSERT(other.value == each.value);
  for (const auto& [key, where] : last.where) RC_ASSERT(both.where.contains(key));
}

// The first that matches holds, so a later file's come first; each file's stay in their order.
TEST(ConfigFiles, ALaterFilesJobsAreLookedAtFirst) {
  const auto job = [](const std::string& name) {
    return "[[job]]\nname = \"" + name + "\"\nclass = \"batch\"\n";
  };
  const auto settings = *parse_configs(as_files({job("a") + job("b"), "", job("c") + job("d")}));
  std::string names;
  for (const JobSetting& each : settings.jobs) names += each.name;
  EXPECT_EQ(names, "cdab");
  EXPECT_EQ(settings.jobs[0].where, "2.toml:1:1");
}

TEST(ConfigFiles, AnErrorNamesItsFileLineAndColumn) {
  const auto wrong = [](const std::vector<std::string>& texts) {
    const auto parsed = parse_configs(as_files(texts));
    return parsed.ok() ? "" : parsed.error().message;
  };
  EXPECT_EQ(wrong({"[governor]\ndry_run = 1\n", "[governor\n", "[safety]\nidle_after_s = 0\n"})
                .find("0.toml:2:11: dry_run 1: wanted true or false; and 1.toml:1:"),
            0u);
  EXPECT_NE(wrong({"", "[safety]\nidle_after_s = 0\n"}).find("1.toml:2:16: idle_after_s 0"),
            std::string::npos);
  // What does not go together names the word that is there.
  EXPECT_EQ(wrong({"[safety]\nexpire_after_s = 2\n", "\n[safety]\nstale_after_s = 3\n"}),
            "0.toml:2:18: expire_after_s 2: must not be less than stale_after_s 3");
  EXPECT_EQ(wrong({"", "\n[safety]\nstale_after_s = 30\n"}),
            "1.toml:3:17: expire_after_s 5: must not be less than stale_after_s 30");
  EXPECT_EQ(wrong({"[tune]\nusers = \"all\"\n", "[tune]\nusers = \"root\"\n"}), "");
}

TEST(ConfigFiles, WhatIsPrintedSaysWhereItComesFrom) {
  const auto settings =
      *parse_configs(as_files({"[governor]\ndry_run = true\ngpus = \"0\"\n",
                               "[governor]\ngpus = \"1\"\n[policy.geepafs]\ndelta = 0.1\n"
                               "[[job]]\nname = \"a\"\ndelta = 0.1\n"}));
  const std::string printed = print_config(settings, Origin::told);
  EXPECT_NE(printed.find("# from 0.toml:2:11\ndry_run = true\n"), std::string::npos);
  EXPECT_NE(printed.find("# from 1.toml:2:8\ngpus = \"1\"\n"), std::string::npos);
  EXPECT_NE(printed.find("\n\n# from 1.toml:5:1\n[[job]]\n"), std::string::npos);
  EXPECT_NE(printed.find("[policy.geepafs]\n# from 1.toml:4:9\ndelta = 0.1\n"), std::string::npos);
  EXPECT_EQ(split(printed, '\n').size(), split(print_config(settings), '\n').size() + 4);
  EXPECT_EQ(print_said(settings),
            "[governor]\ngpus = \"1\"\ndry_run = true\n\n[[job]]\nname = \"a\"\ndelta = 0.1\n"
            "\n[policy.geepafs]\ndelta = 0.1\n");
  const ConfigFile hostile{"a\n[api]\nadmins = \"wheel\"\n", "[governor]\ndry_run = true\n"};
  const auto back =
      *parse_config(print_config(*read_configs({&hostile, 1}), Origin::told), "printed");
  EXPECT_EQ(back.api_admins, "root");
}

TEST(ConfigFiles, AreThoseOfTheFolderInTheOrderOfTheirNames) {
  const Folder folder;
  const std::string file = folder.path() + "/derate.toml", drops = file + ".d";
  const auto write = [](const std::string& path, const std::string& text) {
    ASSERT_TRUE(write_file_atomically(path, text).ok());
  };
  write(file, "[governor]\ngpus = \"0\"\n");
  const ConfigSource source = config_source(file);
  EXPECT_EQ(source.folder, drops);
  EXPECT_EQ(read_config_files(source)->size(), 1u);  // no folder, no files
  ASSERT_TRUE(make_folders(drops).ok());
  write(drops + "/90-b.toml", "");
  write(drops + "/10-a.toml", "");
  for (const char* none : {"/.10-a.toml", "/a.toml~", "/README", "/a.toml.dpkg-old"})
    write(drops + none, "not = [ toml");
  std::vector<std::string> names;
  const auto read = *read_config_files(source);
  for (const ConfigFile& each : read) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector{file, drops + "/10-a.toml", drops + "/90-b.toml"}));
  EXPECT_EQ(read_config_files({folder.path() + "/none", drops}).error().code, Errc::not_found);
  EXPECT_EQ(read_config_files({"", drops})->size(), 2u);
  // Nothing that could keep its reader waiting.
  ASSERT_EQ(::mkfifo((drops + "/50-pipe.toml").c_str(), 0644), 0);
  EXPECT_EQ(read_config_files(source).error().message, drops + "/50-pipe.toml: is no file");
  EXPECT_EQ(config_source("").file.empty() || config_source("").file == kDefaultConfig, true);
  EXPECT_EQ(config_source(kDefaultConfig).folder, "/etc/derate/conf.d");
}

// --- users of jobs -------------------------------------------------------------------------------

// A number is a user's or refused, never another user's.
RC_GTEST_PROP(Config, AJobsUserIsANameOrAUsersNumber, (std::int64_t number)) {
  const std::int64_t edges[] = {-1, UINT32_MAX, std::int64_t{1} << 32, std::int64_t{1} << 33};
  if (*rc::gen::inRange(0, 2) == 0)
    number = edges[*rc::gen::inRange(0, 4)] + *rc::gen::inRange(-1, 2);
  const auto parsed = parse_config(job_of(std::to_string(number)), "derate.toml");
  RC_ASSERT(parsed.ok() == (number >= 0 && number < UINT32_MAX));
}

TEST(Config, UsersThatNobodyCanBeAreRefused) {
  for (const std::string user : {"4294967296", "-1", "4294967295", "+7", "18446744073709551616"})
    EXPECT_EQ(error_of(job_of(user)), "derate.toml:4:8: user \"" + user +
                                          "\": allowed is a user's name or a number in "
                                          "[0, 4294967294]");
  for (const char* user : {"0", "4294967294", "ann", "7up", "", "a-1"})
    EXPECT_TRUE(parse_config(job_of(user), "derate.toml").ok()) << user;
}

RC_GTEST_PROP(Config, PrintedSettingsParseBack, (std::string gpus, bool dry, unsigned clock)) {
  Settings settings;
  for (const char c : gpus)
    if (static_cast<unsigned char>(c) < 0x80) settings.gpus += c;
  settings.dry_run = dry;
  if (clock % 2 == 0) settings.highest_clock_mhz = 1000 + clock % 1000;
  settings.policy_settings = {{"geepafs", "delta", "0.05", ""},
                              {"geepafs", "probe_clocks", "1,2", ""}};
  const auto back = parse_config(print_config(settings), "printed");
  RC_ASSERT(back.ok());
  RC_ASSERT(back->gpus == settings.gpus);
  RC_ASSERT(back->dry_run == dry);
  RC_ASSERT(back->highest_clock_mhz == settings.highest_clock_mhz);
  RC_ASSERT(back->policy_settings.size() == 2u);
  RC_ASSERT(back->policy_settings[1].value == "1,2");
}

}  // namespace
}  // namespace derate
