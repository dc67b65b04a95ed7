#include "device/nvml/nvml_card.h"

#include "device/nvml/nvml_calls.h"

namespace derate {
namespace {

using nvml::Return;

// Larger numbers are no readings.
constexpr int kGenerationMost = 15, kLanesMost = 64, kPercentMost = 110;
constexpr int kXidMost = 9999;

std::optional<std::uint64_t> count_of(const nvml::FieldValue& field) {
  if (field.code != Return::success) return std::nullopt;
  switch (field.type) {
    case nvml::ValueType::uint:
      return field.value.uint;
    case nvml::ValueType::ulong:
    case nvml::ValueType::ulonglong:
      if (field.value.ulonglong == nvml::kNotAvailable64) return std::nullopt;
      return field.value.ulonglong;
    case nvml::ValueType::real:
    case nvml::ValueType::slonglong:
      break;
  }
  return std::nullopt;
}

}  // namespace

NvmlCard::~NvmlCard() {
  if (events_ != nullptr) (void)library_->functions().event_set_free(events_);
}

template <class... P, class... A>
bool NvmlCard::call(Return (*function)(P...), A... arguments) {
  const auto* const key = reinterpret_cast<const void*>(function);
  if (function == nullptr || unsupported_.contains(key)) return false;
  const Return code = function(arguments...);
  if (code == Return::not_supported) unsupported_.insert(key);
  return code == Return::success;
}

std::optional<int> NvmlCard::number(Return (*function)(nvml::Device, unsigned int*), int most) {
  unsigned int raw = 0;
  if (!call(function, device_, &raw) || raw > static_cast<unsigned int>(most)) return std::nullopt;
  return static_cast<int>(raw);
}

std::optional<Fraction> NvmlCard::engine(Return (*function)(nvml::Device, unsigned int*,
                                                            unsigned int*)) {
  unsigned int raw = 0, period_us = 0;
  if (!call(function, device_, &raw, &period_us)) return std::nullopt;
  return nvml_share(raw);
}

void NvmlCard::read_memory(CardReading& out) {
  const NvmlFunctions& nvml = library_->functions();
  nvml::MemoryV2 memory{.version = nvml::kMemoryV2};
  nvml::Memory older{};
  std::optional<unsigned long long> used, total;
  if (call(nvml.memory, device_, &memory)) {
    used = memory.used;
    total = memory.total;
  } else if (call(nvml.memory_v1, device_, &older)) {
    used = older.used;
    total = older.total;
  }
  if (!total || *total == 0 || *total == nvml::kNotAvailable64 || *used > *total) return;
  out.memory_used_bytes = static_cast<double>(*used);
  out.memory_total_bytes = static_cast<double>(*total);
}

void NvmlCard::read_errors(CardReading& out) {
  nvml::FieldValue fields[4] = {};  // two fields, and room for a driver with longer rows
  fields[0].field = nvml::kFieldEccCorrected;
  fields[1].field = nvml::kFieldEccUncorrected;
  if (!call(library_->functions().field_values, device_, 2, fields)) return;
  out.ecc_corrected = count_of(fields[0]);
  out.ecc_uncorrected = count_of(fields[1]);
}

void NvmlCard::listen() {
  const NvmlFunctions& nvml = library_->functions();
  if (std::exchange(listened_, true)) return;
  if (nvml.event_set_free == nullptr || nvml.event_wait == nullptr) return;
  if (nvml.event_register == nullptr || !call(nvml.event_set_create, &events_)) return;
  if (call(nvml.event_register, device_, nvml::kEventXid, events_)) return;
  (void)nvml.event_set_free(events_);
  events_ = nullptr;
}

const XidLog& NvmlCard::look_for_xids(WallTime wall) {
  constexpr int kMost = 100;  // at a time: a driver that never ends its list does not hold us
  for (int i = 0; i < kMost && events_ != nullptr; ++i) {
    nvml::EventData event{};
    if (library_->functions().event_wait(events_, &event, 0) != Return::success) break;
    if (event.type != nvml::kEventXid || event.data > kXidMost) continue;
    const Xid xid{static_cast<int>(event.data), wall};
    XidCount& of = is_of_application(xid.number) ? xids_.programs : xids_.card;
    ++of.count;
    of.last = xid;
  }
  return xids_;
}

SharedCard NvmlCard::read(Instant now, WallTime wall, DriverCosts& costs) {
  constexpr std::chrono::seconds kEvery(5);
  if (newest_ && now - newest_->taken < kEvery) return newest_;
  return newest_ = timed(costs, DriverCall::card, [&] { return SharedCard(read_anew(now, wall)); });
}

CardReading NvmlCard::read_anew(Instant now, WallTime wall) {
  const NvmlFunctions& nvml = library_->functions();
  CardReading out{.taken = now};
  listen();
  read_memory(out);
  out.pcie_generation = number(nvml.pcie_generation, kGenerationMost);
  out.pcie_lanes = number(nvml.pcie_lanes, kLanesMost);
  out.pcie_most_generation = number(nvml.pcie_most_generation, kGenerationMost);
  out.pcie_most_lanes = number(nvml.pcie_most_lanes, kLanesMost);
  if (const auto percents = number(nvml.fan, kPercentMost)) out.fan = nvml_share(*percents);
  out.encoder = engine(nvml.encoder);
  out.decoder = engine(nvml.decoder);
  read_errors(out);
  const XidLog& xids = look_for_xids(wall);
  if (events_ != nullptr) out.xids = xids;
  return out;
}

}  // namespace derate
