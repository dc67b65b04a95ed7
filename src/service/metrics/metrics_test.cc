#include "service/metrics/metric_catalogue.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/json.h"
#include "base/test_comma_locale.h"
#include "base/test_exposition.h"
#include "base/test_page.h"
#include "service/records/test_snapshot.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// --- the pages of metrics ------------------------------------------------------------------------

struct MetricPart {
  const char* of;
  const char* title;
  const char* labels;  // of each
};
constexpr MetricPart kService{"service", "Of the service", ""};
constexpr MetricPart kEngine{
    "engine", "Of each `[[service]]`, an engine that serves a language model", "service"};
constexpr MetricPart kGpu{"gpu", "Of each GPU", "gpu, uuid, pci"};
constexpr MetricPart kTenant{"tenant", "Of tenants", "gpu, uuid, pci"};
constexpr MetricPart kDcgm{
    "dcgm", "By the names of DCGM",
    "gpu, UUID, device, modelName, Hostname, GPU_I_PROFILE, GPU_I_ID, container, namespace, pod, "
    "hpc_job"};

constexpr MetricPart kPart{"part", "Parts of a GPU, in addition to the names of DCGM",
                           "gpu, uuid, pci, GPU_I_PROFILE, GPU_I_ID, container, namespace, pod, "
                           "hpc_job"};

std::string all_labels(const MetricPart& part, const char* more) {
  std::string out = part.labels;
  if (!out.empty() && *more != '\0') out += ", ";
  return out + more;
}

template <class F>
void each_metric(F f) {
  for (const Metric& each : service_metrics()) f(kService, each.family, each.labels);
  for (const Metric& each : engine_metrics()) f(kEngine, each.family, each.labels);
  for (const Metric& each : gpu_metrics()) f(kGpu, each.family, each.labels);
  for (const Metric& each : tenant_metrics()) f(kTenant, each.family, each.labels);
  for (const DcgmMetric& each : dcgm_metrics())
    f(*each.name->unit == '\0' ? kDcgm : kPart, each.family, "");
}

// The tables of docs/metrics.md.
std::string metrics_markdown() {
  std::string out;
  const char* of = "";
  each_metric([&](const MetricPart& part, const MetricFamily& family, const char* labels) {
    if (std::string_view(of) != part.of) {
      of = part.of;
      out += fmt::format("{}### {}\n", out.empty() ? "" : "\n", part.title);
      if (*part.labels != '\0') out += fmt::format("Labels of each: {}.\n", part.labels);
      out += "\n| metric | type | more labels | what it is |\n|---|---|---|---|\n";
    }
    out += fmt::format("| `{}` | {} | {} | {} |\n", sample_name(family), to_string(family.type),
                       labels, family.help);
  });
  return out;
}

// clients/metrics.json, a row each.
Json metrics_json() {
  Json out = Json::array();
  each_metric([&](const MetricPart& part, const MetricFamily& family, const char* labels) {
    out.push_back({{"name", sample_name(family)},
                   {"of", part.of},
                   {"type", to_string(family.type)},
                   {"unit", family.unit},
                   {"labels", all_labels(part, labels)},
                   {"help", family.help}});
  });
  return out;
}
using Labels = std::map<std::string, std::string>;

MetricsOptions full_options(MetricFormat format = MetricFormat::prometheus) {
  return {.format = format,
          .tenants = true,
          .dcgm_names = true,
          .version = "1.2.3",
          .hostname = "node7",
          .now = kFullNow};
}

Exposition metrics_of(const Snapshot& snapshot, const MetricsOptions& options = full_options()) {
  Exposition out = read_exposition(metrics_text(snapshot, options), options.format);
  EXPECT_EQ(out.wrong, "");
  return out;
}

Labels gpu_labels(int index) {
  const GpuId id = full_id(index);
  return {{"gpu", std::to_string(index)}, {"uuid", id.uuid}, {"pci", id.pci_bus_id}};
}

// What `promtool check metrics` says; empty: nothing.
std::string promtool_says(const std::string& text) {
  const Folder folder;
  std::ofstream(folder.path() + "/metrics") << text;
  const std::string command =
      "promtool check metrics < " + folder.path() + "/metrics > " + folder.path() + "/out 2>&1";
  const int status = std::system(command.c_str());
  std::string out = *read_file(folder.path() + "/out");
  return status == 0 ? out : "status " + std::to_string(status) + ": " + out;
}

bool has_promtool() { return std::system("promtool --version > /dev/null 2>&1") == 0; }

TEST(Metrics, OpenMetricsIsAsItsDocumentHasIt) {
  const Exposition read = metrics_of(full_snapshot(2, 3), full_options(MetricFormat::openmetrics));
  EXPECT_EQ(read.families.at("derate_gpu_energy_joules").type, "counter");
  EXPECT_EQ(read.families.at("derate_gpu_energy_joules").unit, "joules");
  EXPECT_EQ(read.families.at("derate_build").type, "info");
  EXPECT_EQ(read.families.at("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION").type, "unknown");
}

TEST(Metrics, PromtoolFindsNothing) {
  if (!has_promtool()) GTEST_SKIP() << "promtool is not installed (Debian: prometheus)";
  MetricsOptions options = full_options();
  options.dcgm_names = false;
  EXPECT_EQ(promtool_says(metrics_text(full_snapshot(2, 3), options)), "");
  EXPECT_EQ(promtool_says(metrics_text(Snapshot{}, options)), "");
  // Names and labels of DCGM are not ours to choose; promtool minds nothing but how they look.
  options.dcgm_names = true;
  const std::string told = promtool_says(metrics_text(full_snapshot(2, 3), options));
  EXPECT_NE(told.find("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter metrics should have"),
            std::string::npos);
  for (const std::string_view line : split(told, '\n'))
    EXPECT_TRUE(line.empty() || line.find("DCGM_FI_") != line.npos) << line;
  EXPECT_EQ(told.find("error"), std::string::npos) << told;
}

TEST(Metrics, AreTheSameInALocaleWithCommas) {
  const Snapshot snapshot = full_snapshot(2, 3);
  const std::string here = metrics_text(snapshot, full_options());
  const CommaLocale comma;
  EXPECT_EQ(metrics_text(snapshot, full_options()), here);
}

// In the full snapshot every row of the table has a sample, in its order, and nothing else has.
TEST(Metrics, TheTextHasTheTable) {
  std::vector<std::string> named;
  for (const Json& each : metrics_json()) named.push_back(each["name"]);
  EXPECT_EQ(std::set(named.begin(), named.end()).size(), named.size());
  std::vector<std::string> told;
  const std::string text = metrics_text(full_snapshot(1, 2), full_options());
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with("# TYPE ")) continue;
    const std::string_view rest = line.substr(7);
    told.emplace_back(rest.substr(0, rest.find(' ')));
  }
  EXPECT_EQ(told, named);
}

// Each label that the table names, and no other.
TEST(Metrics, LabelsAreThoseOfTheTable) {
  const Exposition read = metrics_of(full_snapshot(1, 2));
  for (const Json& each : metrics_json()) {
    std::set<std::string> allowed;
    const std::string labels = each["labels"];
    for (const std::string_view label : split(labels, ',')) allowed.emplace(trim(label));
    for (const Exposition::Sample& sample : read.samples.at(each["name"]))
      for (const auto& [label, value] : sample.labels)
        EXPECT_TRUE(allowed.contains(label)) << each["name"] << " " << label;
  }
}

TEST(Metrics, AreInBaseUnits) {
  const Exposition read = metrics_of(full_snapshot(2, 0));
  const Labels gpu = gpu_labels(1);
  const std::pair<const char*, double> cases[] = {
      {"derate_gpu_power_watts", 412.375},
      {"derate_gpu_energy_joules_total", 2831204.625},
      {"derate_gpu_sm_clock_hertz", 1.41e9},
      {"derate_gpu_asked_sm_clock_hertz", 1.41e9},
      {"derate_gpu_bound_sm_clock_hertz", 1.8e9},
      {"derate_gpu_memory_clock_hertz", 2.619e9},
      {"derate_gpu_utilisation_ratio", 0.98},
      {"derate_gpu_temperature_celsius", 61},
      {"derate_gpu_promised_performance_ratio", 0.9},
      {"derate_gpu_expected_performance_ratio", 0.931},
      {"derate_gpu_governed_seconds_total", 5400},
      {"derate_gpu_probing_seconds_total", 41.2},
      {"derate_gpu_promise_violation_seconds_total", 1.3},
      {"derate_gpu_sample_age_seconds", 0.08},
      {"derate_gpu_processes", 3},
      {"derate_gpu_up", 1},
      {"derate_gpu_lost", 0}};
  for (const auto& [name, value] : cases)
    EXPECT_DOUBLE_EQ(read.find(name, gpu).value_or(-1), value) << name;
  const auto with = [&](const char* key, const char* value) {
    Labels out = gpu;
    out[key] = value;
    return out;
  };
  EXPECT_EQ(read.find("derate_gpu_throttled", with("reason", "power_limit")), 1);
  EXPECT_EQ(read.find("derate_gpu_throttled", with("reason", "idle")), 0);
  EXPECT_EQ(read.find("derate_gpu_throttle_seconds_total", with("reason", "power_limit")), 77);
  EXPECT_EQ(read.find("derate_gpu_activity_ratio", with("unit", "tensor")), 0.63);
  EXPECT_EQ(read.find("derate_gpu_refusals_total", with("rule", "envelope")), 12);
  EXPECT_EQ(read.find("derate_gpu_policy_info", with("policy", "assure")), 1);
  EXPECT_EQ(read.find("derate_build_info", {{"version", "1.2.3"}}), 1);
  EXPECT_EQ(read.find("derate_loop_lateness_max_seconds"), 0.0021);
  EXPECT_EQ(read.find("derate_heartbeats_total", {{"outcome", "too_many"}}), 2);
  EXPECT_EQ(read.find("derate_process_cpu_seconds_total"), 31.5);
}

TEST(Metrics, APromiseHasOneState) {
  Snapshot snapshot = full_snapshot(1, 0);
  const auto states = [&] {
    const Exposition read = metrics_of(snapshot);
    std::string out;
    const auto at = read.samples.find("derate_gpu_promise_state");
    if (at == read.samples.end()) return out;
    for (const auto& sample : at->second)
      if (sample.value == 1) out += sample.labels.at("state") + " ";
    return out;
  };
  const auto is = [&](PromiseState state, const char* word, std::optional<double> below,
                      double attention) {
    snapshot.gpus[0].promise_now = {.state = state, .below = 40s};
    EXPECT_EQ(states(), word);
    const Exposition read = metrics_of(snapshot);
    EXPECT_EQ(read.find("derate_gpu_promise_below_seconds"), below) << word;
    EXPECT_EQ(read.find("derate_gpu_needs_attention"), attention) << word;
  };
  is(PromiseState::kept, "kept ", 0, 0);
  is(PromiseState::below, "below ", 40, 0);
  is(PromiseState::broken, "broken ", 40, 1);
  is(PromiseState::not_known, "not_known ", std::nullopt, 0);
  is(PromiseState::none, "", std::nullopt, 0);
}

TEST(Metrics, ASavingHasTheEndsOfItsInterval) {
  const Exposition read = metrics_of(full_snapshot(1, 0));
  const double reach = 1.645 * 5e4;
  EXPECT_NEAR(read.find("derate_gpu_saved_energy_joules").value_or(0), 0.8e6, 1e-3);
  EXPECT_NEAR(read.find("derate_gpu_saved_energy_low_joules").value_or(0), 0.8e6 - reach, 1e-3);
  EXPECT_NEAR(read.find("derate_gpu_saved_energy_high_joules").value_or(0), 0.8e6 + reach, 1e-3);
  // Of all energy of the board, of which 2.1 MJ were governed.
  EXPECT_NEAR(read.find("derate_gpu_saved_energy_ratio").value_or(0), 0.8e6 / (2831204.625 + 0.8e6),
              1e-9);
  EXPECT_EQ(read.find("derate_gpu_governed_energy_joules_total"), 2.1e6);
  EXPECT_EQ(read.find("derate_gpu_at_highest_clock_energy_joules_total"), 2.9e6);
  EXPECT_EQ(read.find("derate_gpu_at_highest_clock_energy_sd_joules_total"), 5e4);
  EXPECT_NEAR(read.find("derate_gpu_estimated_loss_ratio").value_or(0), 4.0 / 90, 1e-9);
  EXPECT_NEAR(read.find("derate_gpu_estimated_loss_bound_ratio").value_or(0),
              (4.0 + 1.645 * 0.5) / 90, 1e-9);
}

// A sensor that is not there, a reading that failed, one that is old: no sample at all.
TEST(Metrics, WhatIsNotKnownIsAbsent) {
  Snapshot snapshot = full_snapshot(1, 0);
  snapshot.gpus[0].record.sample->temperature.reset();
  EXPECT_FALSE(metrics_of(snapshot).samples.contains("derate_gpu_temperature_celsius"));

  MetricsOptions later = full_options();
  later.now += 6s;
  const Exposition old = metrics_of(snapshot, later);
  for (const char* gauge :
       {"derate_gpu_power_watts", "derate_gpu_sm_clock_hertz", "derate_gpu_activity_ratio",
        "derate_gpu_processes", "derate_gpu_throttled", "DCGM_FI_DEV_SM_CLOCK"})
    EXPECT_FALSE(old.samples.contains(gauge)) << gauge;
  EXPECT_TRUE(old.samples.contains("derate_gpu_energy_joules_total"));
  EXPECT_NEAR(old.find("derate_gpu_sample_age_seconds").value_or(0), 6.08, 1e-9);

  const Exposition nothing = metrics_of(Snapshot{});
  EXPECT_FALSE(nothing.samples.contains("derate_gpu_up"));
  EXPECT_FALSE(nothing.samples.contains("derate_snapshot_age_seconds"));
  // A GPU of `derate run`, of which no totals are kept.
  snapshot.gpus[0].totals.reset();
  EXPECT_EQ(metrics_of(snapshot).find("derate_gpu_power_watts"), 412.375);
}

TEST(Metrics, AnObservedGpuHasNoPolicyAndNoPromise) {
  Snapshot snapshot = full_snapshot(1, 0);
  snapshot.gpus[0].policy.clear();
  const Exposition read = metrics_of(snapshot);
  EXPECT_EQ(read.find("derate_gpu_governed"), 0);
  for (const char* name : {"derate_gpu_policy_info", "derate_gpu_promised_performance_ratio",
                           "derate_gpu_asked_sm_clock_hertz"})
    EXPECT_FALSE(read.samples.contains(name)) << name;
}

TEST(Metrics, AGpuThatIsLostOrClosedIsTold) {
  Snapshot snapshot = full_snapshot(3, 0);
  snapshot.gpus[1].totals->lost = snapshot.gpus[1].totals->stuck = true;
  snapshot.away.push_back({snapshot.gpus[2].id, *snapshot.gpus[2].totals});
  snapshot.gpus.pop_back();
  Exposition read = metrics_of(snapshot);
  for (const int lost : {1, 2}) {
    EXPECT_EQ(read.find("derate_gpu_up", gpu_labels(lost)), 0);
    EXPECT_EQ(read.find("derate_gpu_lost", gpu_labels(lost)), 1);
    EXPECT_TRUE(read.find("derate_gpu_energy_joules_total", gpu_labels(lost)));
    EXPECT_FALSE(read.find("derate_gpu_asked_sm_clock_hertz", gpu_labels(lost)));
  }
  EXPECT_EQ(read.find("derate_gpu_governed", gpu_labels(0)), 1);
  EXPECT_EQ(read.find("derate_gpu_governed", gpu_labels(1)), 0);
  EXPECT_EQ(read.find("derate_gpu_stuck", gpu_labels(1)), 1);
  EXPECT_EQ(read.find("derate_gpus", {{"state", "lost"}}), 2);
  EXPECT_EQ(read.find("derate_gpus", {{"state", "open"}}), 1);
  EXPECT_FALSE(read.find("derate_gpu_power_watts", gpu_labels(2)));

  snapshot.paused = true;
  read = metrics_of(snapshot);
  EXPECT_EQ(read.find("derate_gpu_lost", gpu_labels(2)), 0);
  EXPECT_EQ(read.find("derate_gpus", {{"state", "closed"}}), 1);
  EXPECT_EQ(read.find("derate_paused"), 1);
}

TEST(Metrics, TenantsAddUpToTheBoardAndHaveTheirLabelsApart) {
  const Exposition read = metrics_of(full_snapshot(2, 70));
  const double tenants = read.sum("derate_tenant_energy_joules_total");
  EXPECT_NEAR(tenants + read.sum("derate_gpu_unallocated_energy_joules_total") +
                  read.sum("derate_gpu_ended_tenants_energy_joules_total"),
              read.sum("derate_gpu_attributed_energy_joules_total"), 1e-6);
  EXPECT_EQ(read.samples.at("derate_tenant_energy_joules_total").size(), 2 * 65u);
  EXPECT_EQ(read.samples.at("derate_tenant_info").size(), 2 * 64u);
  Labels other = gpu_labels(0);
  EXPECT_EQ(read.find("derate_gpu_tenants", other), 70);
  other["tenant"] = "other";
  EXPECT_NEAR(read.find("derate_tenant_power_watts", other).value_or(0), 600.015, 1e-9);
  EXPECT_EQ(read.find("derate_tenant_info", {{"gpu", "1"}, {"pod", "train-60"}, {"user", "user0"}}),
            1);
}

TEST(Metrics, TenantsCanBeLeftOutAndDcgmsNamesAreAskedFor) {
  MetricsOptions options = full_options();
  options.tenants = options.dcgm_names = false;
  const std::string text = metrics_text(full_snapshot(1, 3), options);
  EXPECT_EQ(text.find("derate_tenant"), std::string::npos);
  EXPECT_EQ(text.find("DCGM"), std::string::npos);
}

TEST(Metrics, AnOldTickTellsNoPowerOfTenants) {
  MetricsOptions later = full_options();
  later.now += 11s;
  const Exposition read = metrics_of(full_snapshot(1, 3), later);
  EXPECT_FALSE(read.samples.contains("derate_tenant_power_watts"));
  EXPECT_FALSE(read.samples.contains("derate_gpu_tenants"));
  EXPECT_TRUE(read.samples.contains("derate_tenant_energy_joules_total"));
}

TEST(MetricsDocuments, HaveTheTable) {
  const std::filesystem::path source = DERATE_SOURCE_DIR;
  expect_part(source / "docs/metrics.md", "<!-- metrics -->\n", "<!-- end of metrics -->\n",
              metrics_markdown());
  std::string lines;
  for (const Json& each : metrics_json()) lines += (lines.empty() ? "\n" : ",\n") + json_text(each);
  expect_part(source / "clients/metrics.json", "{\"metrics\": [", "\n]}\n", lines);
}

// --- DCGM's names --------------------------------------------------------------------------------

TEST(DcgmMetrics, AGpuWithoutTenantsHasOneRowAsDcgmExporterWritesIt) {
  Snapshot snapshot = full_snapshot(1, 0);
  snapshot.tenants.clear();
  const Exposition read = metrics_of(snapshot);
  const Labels labels = {{"gpu", "0"},
                         {"UUID", full_id(0).uuid},
                         {"device", "nvidia0"},
                         {"modelName", "NVIDIA H200"},
                         {"Hostname", "node7"}};
  const std::pair<const char*, double> cases[] = {
      {"DCGM_FI_DEV_GPU_TEMP", 61},
      {"DCGM_FI_DEV_POWER_USAGE", 412.375},
      {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 2831204625},
      {"DCGM_FI_DEV_SM_CLOCK", 1410},
      {"DCGM_FI_DEV_MEM_CLOCK", 2619},
      {"DCGM_FI_DEV_GPU_UTIL", 98},
      {"DCGM_FI_DEV_MEM_COPY_UTIL", 41},
      {"DCGM_FI_PROF_GR_ENGINE_ACTIVE", 0.97},
      {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.63},
      {"DCGM_FI_PROF_PCIE_RX_BYTES", 3.4e8}};
  for (const auto& [name, value] : cases) {
    ASSERT_EQ(read.samples.at(name).size(), 1u) << name;
    EXPECT_EQ(read.samples.at(name).front().labels, labels) << name;
    EXPECT_DOUBLE_EQ(read.samples.at(name).front().value, value) << name;
  }
}

// The result of `max by (gpu)`, with which NVIDIA's dashboard 12239 reads power and energy.
double most_of(const Exposition& read, const char* name) {
  double out = 0;
  for (const Exposition::Sample& sample : read.samples.at(name)) out = std::max(out, sample.value);
  return out;
}

TEST(DcgmMetrics, EachPodHasTheBoardsPowerAsDcgmExporterRepeatsIt) {
  const Exposition read = metrics_of(full_snapshot(1, 3));
  ASSERT_EQ(read.samples.at("DCGM_FI_DEV_POWER_USAGE").size(), 3u);
  EXPECT_EQ(read.find("DCGM_FI_DEV_POWER_USAGE", {{"pod", "train-1"}}), 412.375);
  EXPECT_EQ(most_of(read, "DCGM_FI_DEV_POWER_USAGE"), 412.375);
  EXPECT_EQ(most_of(read, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), 2831204625);
}

// `dcgm_parts` keeps the names of the version before for one release.
TEST(DcgmMetrics, WithDcgmPartsEachPodHasItsOwnUnderDcgmsNames) {
  MetricsOptions options = full_options();
  options.dcgm_parts = true;
  const Exposition read = metrics_of(full_snapshot(1, 3), options);
  EXPECT_EQ(read.find("DCGM_FI_DEV_POWER_USAGE", {{"pod", "train-1"}}), 100.001);
  EXPECT_NEAR(read.sum("DCGM_FI_DEV_POWER_USAGE"), 350.003, 1e-9);
  EXPECT_EQ(read.sum("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"), 350'003);
}

TEST(DcgmMetrics, EachPodHasItsOwnPartAndTheRowsAddUpToTheBoard) {
  const Exposition read = metrics_of(full_snapshot(1, 3));
  const auto& power = read.samples.at("derate_part_power_watts");
  ASSERT_EQ(power.size(), 4u);  // three pods and the part of nobody
  EXPECT_EQ(read.find("derate_part_power_watts", {{"pod", "train-1"}}), 100.001);
  EXPECT_NEAR(read.sum("derate_part_power_watts"), 350.003, 1e-9);
  EXPECT_NEAR(read.sum("derate_part_energy_joules_total"), 350.003, 1e-9);
  EXPECT_EQ(read.find("DCGM_FI_DEV_GPU_TEMP", {{"pod", "train-2"},
                                               {"namespace", "research"},
                                               {"container", "0123456789ab"},
                                               {"hpc_job", "7002"}}),
            61);
  // Whose utilisation it is cannot be told.
  ASSERT_EQ(read.samples.at("DCGM_FI_DEV_GPU_UTIL").size(), 1u);
  EXPECT_FALSE(read.samples.at("DCGM_FI_DEV_GPU_UTIL").front().labels.contains("pod"));
  const Exposition alone = metrics_of(full_snapshot(1, 1));
  EXPECT_EQ(alone.find("DCGM_FI_DEV_GPU_UTIL", {{"pod", "train-0"}}), 98);
}

TEST(DcgmMetrics, AnInstanceHasItsOwnPowerAndActivity) {
  Snapshot snapshot = full_snapshot(1, 0);
  AttributionPicture picture = *snapshot.attribution.front();
  const char* const kUuids[] = {"MIG-1", "MIG-2"};
  Tenancy tenancy;
  for (int i = 0; i < 2; ++i) {
    TenantEnergy energy{.key = std::string("mig:") + kUuids[i]};
    energy.dynamic_mj = 100'000 * (i + 1);
    TenantLabels who = full_tenant(i);
    who.instance = kUuids[i];
    picture.tenants.push_back({energy, who, sums_of(energy, 1s)});
    picture.board.board_mj += energy.total_mj();
    picture.newest->board_mj += energy.total_mj();
    tenancy.instances.push_back({.id = 7 + i, .uuid = kUuids[i], .profile = "3g.71gb"});
    tenancy.instances.back().activity.sm = Fraction(0.2 + i);
  }
  tenancy.instances.push_back({.id = 9, .uuid = "MIG-3", .profile = "1g.18gb"});  // nobody there
  TenantRows rows;
  rows.read(full_id(0), tenancy);
  snapshot.attribution = {std::make_shared<const AttributionPicture>(picture)};
  rows.take(snapshot.attribution, kFullNow);
  snapshot.tenants = rows.tables();
  const Exposition read = metrics_of(snapshot);
  const Labels first = {{"GPU_I_ID", "7"}, {"GPU_I_PROFILE", "3g.71gb"}, {"pod", "train-0"}};
  const Labels second = {{"GPU_I_ID", "8"}, {"GPU_I_PROFILE", "3g.71gb"}, {"pod", "train-1"}};
  EXPECT_EQ(read.find("derate_part_power_watts", first), 100);
  EXPECT_EQ(read.find("derate_part_power_watts", second), 200);
  EXPECT_EQ(read.find("DCGM_FI_DEV_POWER_USAGE", first), 412.375);
  EXPECT_EQ(most_of(read, "DCGM_FI_DEV_POWER_USAGE"), 412.375);
  EXPECT_EQ(read.find("DCGM_FI_PROF_SM_ACTIVE", first), 0.2);
  EXPECT_EQ(read.find("DCGM_FI_PROF_SM_ACTIVE", second), 1.2);
  EXPECT_EQ(read.find("DCGM_FI_DEV_GPU_TEMP", {{"GPU_I_ID", "9"}}), 61);
  EXPECT_EQ(read.samples.at("DCGM_FI_PROF_SM_ACTIVE").size(), 2u);
  EXPECT_EQ(read.sum("derate_part_power_watts"), 350);
}

}  // namespace
}  // namespace derate
