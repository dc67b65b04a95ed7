#include "policy/assure/assure.h"

#include <algorithm>

#include "model/curve_priors.h"
#include "policy/assure/assure_policy.h"

namespace derate {
namespace {

constexpr const char* kPriors[] = {"own", "all", "V100-SXM2", "A100-SXM4"};
constexpr const char* kNoYes[] = {"no", "yes"};
constexpr const char* kTrust[] = {"own", "trusted", "doubted", "ignored"};
// Of their full value, so much too much at 79 % of the highest clock and below. Applications of the
// tables need none; kernels of another card of the same chip, and counters that overstate by 1 %,
// are within the first; counters that follow three quarters of the progress within the second
// (docs/policies/assure.md).
constexpr double kTrusted = 0.005, kDoubted = 0.027;

constexpr ParamSpec kAssureParams[] = {
    {"delta", ParamSpec::Type::number, "", "loss of performance allowed, over the whole job",
     "0.10", 0, 0.5, false},
    {"confidence", ParamSpec::Type::number, "", "with which the promise is kept", "0.99", 0.5,
     0.9999},
    {"settle", ParamSpec::Type::number, "s",
     "readings so soon after a change of the clock are not used, at most", "3", 0, 10},
    {"reference", ParamSpec::Type::number, "s", "at the highest clock at a job's start, at most",
     "3", 0.2, 600},
    {"tick", ParamSpec::Type::number, "s", "control period", "0.2", 0.01, 10},
    {"prior", ParamSpec::Type::choice, "",
     "whose measured applications are taken as alike: the chip's own (all where it has none), all, "
     "or one chip's",
     "own", 0, 0, true, kPriors},
    {"counters", ParamSpec::Type::choice, "",
     "how far counters are trusted: trusted, doubted, or ignored, so that the clock's ratio alone "
     "counts; own: trusted where the chip has measured applications, else doubted",
     "own", 0, 0, true, kTrust},
    {"overstated", ParamSpec::Type::number, "",
     "counters may show so much of their full value too much at low clocks, in addition to what "
     "measured applications show; it counts where it is more than `counters` allows for",
     "0", 0, 0.2},
    {"leave_out", ParamSpec::Type::choice, "",
     "leave the application that runs out of them, by its name: for honest figures", "no", 0, 0,
     true, kNoYes},
};

bool has_rows(const std::string& chip) {
  const auto rows = curve_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const CurveRow& row) { return row.chip == chip; });
}

Result<std::unique_ptr<Policy>> create_assure(const PolicySetup& setup) {
  const auto number = [&](const char* name) { return *setup.params.number(name); };
  AssureOptions options;
  options.highest = setup.envelope.highest();
  options.delta = number("delta");
  options.confidence = number("confidence");
  options.tick = number("tick");
  const std::string trust = kTrust[static_cast<std::size_t>(number("counters"))];
  const bool trusted = trust == "trusted" || (trust == "own" && has_rows(setup.chip));
  options.overstated = std::max(number("overstated"), trusted ? kTrusted : kDoubted);
  options.ignore_counters = trust == "ignored";
  options.settle = from_seconds(number("settle"));
  options.reference = from_seconds(number("reference"));
  const std::string prior = kPriors[static_cast<std::size_t>(number("prior"))];
  options.prior = prior == "own" ? setup.chip : prior == "all" ? "" : prior;
  options.foreign = options.prior != setup.chip || !has_rows(setup.chip);
  options.leave_out = number("leave_out") > 0;
  options.dry_run = setup.dry_run;
  options.chip = setup.chip;
  options.models = setup.models;
  return std::make_unique<Assure>(options, Account{.work = setup.account, .domain = setup.domain});
}

}  // namespace

PolicyInfo assure_info() {
  return {"assure",
          "keep the promise with a stated confidence, at the lowest clock that does",
          "Learns how progress follows the clock from few readings and a prior that measured "
          "applications gave, with its uncertainty; takes the clock of least energy that keeps the "
          "promise surely enough, counts what was earned and lost over the whole job, knows phases "
          "again that return, and looks at the highest clock only when it must.",
          false,
          kAssureParams,
          create_assure,
          PolicyInfo::Promise::delta,
          true};
}

}  // namespace derate
