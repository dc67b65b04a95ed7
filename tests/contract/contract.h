// What every back end must do, whatever stands behind it. A back end joins with one line in
// contract_test.cc: INSTANTIATE_TEST_SUITE_P(Name, Contract, testing::Values(...)).
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "device/clock_control.h"
#include "device/telemetry_source.h"

namespace derate {

// A back end with a GPU behind it that is at work, and what the suite needs to drive it. Time need
// not be virtual: the suite only ever asks for it to pass.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual TelemetrySource& source() = 0;
  // Null when it cannot turn knobs; the GPU then does what it does.
  virtual ClockControl* control() { return nullptr; }
  virtual SampleSource tag() const = 0;
  virtual Instant now() const = 0;
  virtual void pass(Duration time) = 0;  // a minute in all must be left in it
  // How old the newest sample may be when nothing is wrong.
  virtual Duration oldest() const { return {}; }
};

struct ContractCase {
  std::string name;  // of a test: letters, digits, underscores
  std::function<std::unique_ptr<Subject>()> make;
};
inline void PrintTo(const ContractCase& c, std::ostream* out) { *out << c.name; }
inline std::string case_name(const testing::TestParamInfo<ContractCase>& info) {
  return info.param.name;
}

class Contract : public testing::TestWithParam<ContractCase> {
 protected:
  void SetUp() override { subject_ = GetParam().make(); }

  TelemetrySource& source() { return subject_->source(); }
  const Capability& capability() { return source().capability(); }
  Instant now() const { return subject_->now(); }
  void pass(Duration time) { subject_->pass(time); }

  Sample read(const ReadPlan& plan = {}) {
    auto sample = source().read(plan);
    EXPECT_TRUE(sample.ok()) << sample.error().message;
    return sample ? *std::move(sample) : Sample{};
  }
  Sample read_after(Duration wait, const ReadPlan& plan = {}) {
    pass(wait);
    return read(plan);
  }

  std::unique_ptr<Subject> subject_;
};

}  // namespace derate
