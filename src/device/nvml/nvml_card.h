// The card of one GPU by NVML: memory, link, fan, video engines, errors (core/card_reading.h).
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "core/card_reading.h"
#include "core/driver_costs.h"
#include "device/nvml/nvml_library.h"

namespace derate {

// On an H200 (580.159.04) a reading takes 0.2 ms of CPU, of which the width of the link takes
// 0.065 ms. A call that is not supported is not repeated: the fan of that board, which has none,
// takes 0.39 ms. nvmlDeviceGetPcieThroughput is not called: it waits for 21 ms, and GPM has the
// same rates.
class NvmlCard {
 public:
  NvmlCard(std::shared_ptr<const NvmlLibrary> library, nvml::Device device)
      : library_(std::move(library)), device_(device) {}
  NvmlCard(const NvmlCard&) = delete;
  NvmlCard& operator=(const NvmlCard&) = delete;
  ~NvmlCard();

  // The newest reading, made anew if it is older than 5 s. The first one begins to listen for Xid
  // errors, which takes 1 ms. Adds to `costs` what it took.
  SharedCard read(Instant now, WallTime wall, DriverCosts& costs);
  // Also of a GPU that answers nothing else any more.
  const XidLog& look_for_xids(WallTime wall);

 private:
  template <class... P, class... A>
  bool call(nvml::Return (*function)(P...), A... arguments);
  std::optional<int> number(nvml::Return (*function)(nvml::Device, unsigned int*), int most);
  std::optional<Fraction> engine(nvml::Return (*function)(nvml::Device, unsigned int*,
                                                          unsigned int*));
  void read_memory(CardReading& out);
  void read_errors(CardReading& out);
  void listen();
  CardReading read_anew(Instant now, WallTime wall);

  std::shared_ptr<const NvmlLibrary> library_;
  nvml::Device device_;
  std::set<const void*> unsupported_;  // functions
  nvml::EventSet events_ = nullptr;    // null: not listened to, or not to be had
  bool listened_ = false;
  XidLog xids_;
  SharedCard newest_;
};

}  // namespace derate
