// A snapshot in which everything is known, for tests and benchmarks of who reads it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/records/snapshot.h"

namespace derate {

inline constexpr Instant kFullNow{std::chrono::hours(2)};

inline Sample full_sample(Instant time) {
  Sample out{.time = time, .source = SampleSource::nvml};
  out.gpu_utilisation = Fraction(0.98);
  out.memory_utilisation = Fraction(0.41);
  out.sm_clock = Megahertz(1410);
  out.memory_clock = Megahertz(2619);
  out.power_instant = Watts(412.375);
  out.energy = Joules(8123456.789);
  out.temperature = Celsius(61);
  out.throttle_reasons = throttle::kSwPowerCap;
  out.activity = {.graphics = Fraction(0.97),
                  .sm = Fraction(0.91),
                  .occupancy = Fraction(0.44),
                  .integer = Fraction(0.12),
                  .tensor = Fraction(0.63),
                  .dram = Fraction(0.58),
                  .fp64 = Fraction(0.01),
                  .fp32 = Fraction(0.22),
                  .fp16 = Fraction(0.05),
                  .pcie_tx = BytesPerSecond(1.2e9),
                  .pcie_rx = BytesPerSecond(3.4e8)};
  out.tenants = 3;
  out.card = SharedCard(
      {.taken = time,
       .memory_used_bytes = 41e9,
       .memory_total_bytes = 80e9,
       .pcie_generation = 4,
       .pcie_lanes = 16,
       .pcie_most_generation = 5,
       .pcie_most_lanes = 16,
       .fan = Fraction(0.35),
       .encoder = Fraction(0),
       .decoder = Fraction(0.1),
       .ecc_corrected = 2,
       .ecc_uncorrected = 0,
       .xids = XidLog{.card = {},
                      .programs = {3, Xid{31, WallTime(std::chrono::seconds(1'700'000'000))}}}});
  return out;
}

inline GpuTotals full_totals(const Sample& sample) {
  GpuTotals out{.energy = Joules(2831204.625)};
  out.governed = std::chrono::minutes(90);
  out.observed = std::chrono::minutes(30);
  out.probing = std::chrono::milliseconds(41200);
  out.idle = std::chrono::minutes(7);
  out.below_promise = std::chrono::milliseconds(1300);
  out.violations = 2;
  out.throttled[2] = std::chrono::seconds(77);
  out.writes = 210;
  out.failed_writes = 1;
  out.drifts = 3;
  out.refusals[1] = 12;
  out.reads = 72000;
  out.failed_reads = 4;
  out.saving = Saving{.energy = Joules(2.1e6),
                      .energy_at_highest = Joules(2.9e6),
                      .energy_sd = Joules(5e4),
                      .time = std::chrono::minutes(90),
                      .time_at_highest = std::chrono::minutes(86),
                      .time_sd = std::chrono::seconds(30)};
  out.most_saving = saving_sums(*out.saving);
  out.sampled = out.activity_read = out.processes_read = sample.time;
  out.due_within = std::chrono::seconds(2);
  out.activity = sample.activity;
  out.processes = sample.tenants;
  return out;
}

inline GpuId full_id(int index) {
  return {.index = index,
          .uuid = "GPU-5f0d9c1e-2222-3333-4444-0000000000" + std::to_string(10 + index),
          .pci_bus_id = "00000000:" + std::to_string(10 + index) + ":00.0",
          .name = "NVIDIA H200"};
}

inline GpuSnapshot full_gpu(int index) {
  GpuSnapshot out{.id = full_id(index), .policy = "assure"};
  out.record.time = kFullNow;
  out.record.sample = full_sample(kFullNow - std::chrono::milliseconds(80));
  out.record.estimate.power = Watts(412.375);
  out.record.decision.expected_performance = Fraction(0.931);
  out.record.actuation.locked = Megahertz(1410);
  out.record.actuation.power_limit = Watts(650);
  out.highest_clock = Megahertz(1980);
  out.factory_power_limit = Watts(700);
  out.promise = 0.9;
  out.promise_now = {.state = PromiseState::kept, .performance = 0.931, .promised = 0.9};
  out.assigned = GpuSnapshot::Assigned{origins::command, "uid 7", "policy set", {}};
  out.bounds.push_back({.source = "budget", .who = "rack 3", .why = "", .most = 1800});
  out.totals = full_totals(*out.record.sample);
  return out;
}

inline TenantLabels full_tenant(int number) {
  return {.pid = 4000 + number,
          .process = "python3",
          .user = "user" + std::to_string(number % 4),
          .container = "0123456789ab",
          .name_space = "research",
          .pod = "train-" + std::to_string(number),
          .job = std::to_string(7000 + number),
          .instance = ""};
}

// A tick of these tenants, 100 J each and more, and 50 J of nobody.
inline std::shared_ptr<const AttributionPicture> full_picture(int index, int tenants) {
  AttributionPicture out{.id = full_id(index), .method = &split_methods().front()};
  out.newest = {std::chrono::seconds(1), 50'000, 50'000, std::nullopt};
  for (int i = 0; i < tenants; ++i) {
    TenantEnergy energy{.key = "pid:8123" + std::to_string(i) + ":" + std::to_string(4000 + i)};
    energy.dynamic_mj = 100'000 + i;
    out.newest->board_mj += energy.total_mj();
    out.tenants.push_back({energy, full_tenant(i), sums_of(energy, std::chrono::seconds(1))});
  }
  out.board = {
      .board_mj = out.newest->board_mj, .unallocated_mj = 50'000, .time = std::chrono::seconds(1)};
  return std::make_shared<const AttributionPicture>(std::move(out));
}

inline ServiceView full_service() {
  ServiceView out{.name = "chat",
                  .metrics = "http://127.0.0.1:8000/metrics",
                  .engine = "vLLM",
                  .model = "m",
                  .promise = {"itl p99 <= 50 ms"},
                  .promise_state = "kept",
                  .edge_seconds = 0.05,
                  .age_seconds = 0.2,
                  .running = 8,
                  .waiting = 1,
                  .kv_share_ratio = 0.3};
  out.figures = ServiceFigures{.window_seconds = 600,
                               .tokens_per_second = 400,
                               .requests_per_second = 2,
                               .joules_per_token = 0.25,
                               .joules_per_prompt_token = 0.02,
                               .joules_per_prompt_token_sd = 0.002,
                               .joules_per_decoded_token = 0.2,
                               .joules_per_decoded_token_sd = 0.01,
                               .waiting_energy_ratio = 0.1,
                               .itl_p50_at_most_seconds = 0.025,
                               .itl_p99_at_most_seconds = 0.05,
                               .ttft_p50_at_most_seconds = 0.25,
                               .ttft_p99_at_most_seconds = 1,
                               .late_ratio = 0.001,
                               .late_by_clock_ratio = 0.0005,
                               .late_at_most_ratio = 0.004};
  out.gpus.push_back({.index = 0, .uuid = full_id(0).uuid, .governed = true});
  return out;
}

inline Snapshot full_snapshot(int gpus, int tenants) {
  Snapshot out{.beats = {.heard = 12, .malformed = 1, .too_many = 2, .unplaced = 3}};
  out.time = kFullNow;
  out.paused = false;
  out.loop =
      LatenessFigures{72000, std::chrono::microseconds(180), std::chrono::microseconds(2100)};
  out.attributes = true;
  TenantRows rows;
  for (int i = 0; i < gpus; ++i) {
    out.gpus.push_back(full_gpu(i));
    out.attribution.push_back(full_picture(i, tenants));
  }
  rows.take(out.attribution, kFullNow);
  out.tenants = rows.tables();
  out.daemon = {.cpu = std::chrono::milliseconds(31500),
                .resident_bytes = 18'000'000,
                .open_descriptors = 41,
                .most_descriptors = 1024,
                .started = WallTime(std::chrono::seconds(1790000000))};
  out.history = HistoryFigures{.bytes = 48'000'000, .given_up = 3, .failed_reads = 2};
  out.services.push_back(full_service());
  return out;
}

}  // namespace derate
