#include "govern/audit_record.h"

#include <fmt/format.h>

#include "core/knob.h"

namespace derate {
namespace {

using Outcome = Actuation::Outcome;

std::string text_of(std::optional<Megahertz> clock) {
  return clock ? fmt::format("{:.0f} MHz", clock->value()) : "unlocked";
}

const char* words_of(const char* knob) { return find_knob(gpu_knobs(), knob)->words; }

bool is_news(const Record& record, const std::optional<Record>& before) {
  switch (record.actuation.outcome) {
    case Outcome::written:
    case Outcome::released:
    case Outcome::failed:
      return true;
    case Outcome::yielded:  // told at every tick from then on
      return !before || before->actuation.outcome != Outcome::yielded;
    case Outcome::nothing:
    case Outcome::shadow:
    case Outcome::waiting:
      break;
  }
  return false;
}

}  // namespace

std::optional<AuditEntry> audit_of(const Record& record, const std::optional<Record>& before,
                                   const DomainId& domain, WallTime time) {
  if (!is_news(record, before)) return std::nullopt;
  const Actuation& done = record.actuation;
  AuditEntry entry{
      time, {}, domain, words_of(kClockLock), text_of(done.before), text_of(done.locked), {}, {}};
  entry.why = describe(record.clamped.decision.reason);
  entry.error = done.error;
  if (done.outcome == Outcome::released)
    entry.what = record.clamped.decision.kind == Decision::Kind::unlock ? "unlock" : "release";
  if (done.power_limit) {
    entry.what = words_of(kPowerLimit);
    entry.after = fmt::format("{:.0f} W", done.power_limit->value());
  }
  if (done.power_before) entry.before = fmt::format("{:.0f} W", done.power_before->value());
  if (done.outcome == Outcome::failed) entry.before = entry.after = "";
  if (done.outcome == Outcome::yielded) {
    entry.what = "yield";
    entry.before = entry.after = entry.error = "";
    entry.why = done.error;
  }
  return entry;
}

AuditEntry audit_of_restore(const Result<void>& restored, const DomainId& domain,
                            const std::string& why, WallTime time) {
  AuditEntry entry{time, {}, domain, "restore", {}, {}, why, {}};
  if (!restored.ok() && restored.error().message.find(short_name(domain)) != std::string::npos)
    entry.error = restored.error().message;
  return entry;
}

}  // namespace derate
