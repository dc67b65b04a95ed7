// A GPU whose activity DCGM's host engine measures: all else comes from the source behind it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/dcgm/dcgm_reader.h"
#include "device/telemetry_source.h"

namespace derate {

// Fills the activity of readings, and of MIG instances, if the inner source has none. An instance's
// activity is that of the engine's last period. Needs the engine only while the GPU works: some
// boards draw more while they are measured (dcgm-exporter#464).
class DcgmSource final : public TelemetrySource {
 public:
  DcgmSource(std::unique_ptr<TelemetrySource> inner, std::shared_ptr<DcgmReader> reader);

  const Capability& capability() const override { return inner_->capability(); }
  std::shared_ptr<const DriverCosts> costs() const override { return inner_->costs(); }
  void start_reading(const ReadPlan& plan) override { inner_->start_reading(plan); }
  Result<Sample> read(const ReadPlan& plan) override;
  Result<std::vector<GpuProcess>> processes() override { return inner_->processes(); }
  void start_processes() override { inner_->start_processes(); }
  std::optional<Result<std::vector<GpuProcess>>> poll_processes() override {
    return inner_->poll_processes();
  }
  Result<Tenancy> tenancy() override;
  void start_tenancy() override { inner_->start_tenancy(); }
  std::optional<Result<Tenancy>> poll_tenancy() override;

 private:
  void note_work(const Sample& sample);
  void fill(Sample& sample);
  bool works(Instant now) const;
  void need(Instant now, std::optional<Instant>& before);
  Tenancy filled(Tenancy tenancy);
  bool note_instances(const Tenancy& tenancy);

  std::unique_ptr<TelemetrySource> inner_;
  std::shared_ptr<DcgmReader> reader_;
  const std::string& uuid_;             // of inner_
  std::optional<Instant> worked_;       // when a reading had work last
  bool mig_ = false;                    // a survey showed instances
  std::optional<Instant> requested_;    // when a reading with activity was requested last
  std::optional<Instant> surveyed_;     // ... and the tenancy with instances
  std::optional<Instant> pressing_;     // when one came first, or soon after another, last
  std::optional<Instant> given_;        // the time of the activity that was given last
  std::vector<std::string> instances_;  // of the last survey
  int partition_ = 0;                   // how often they have changed
};

}  // namespace derate
