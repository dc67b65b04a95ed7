// Facts of a board that NVML gives and Derate never reads, for foreign clients: memory, compute
// capability, cores, memory bus, PCI id.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/capability.h"

namespace derate::fakenvml {

struct BoardFacts {
  std::string_view product;  // a part of NVML's name of it; empty: any board of the architecture
  Architecture architecture;
  std::uint32_t memory_mib;
  std::uint32_t compute_major, compute_minor;
  std::uint32_t cores;
  std::uint32_t memory_bus_bits;
  std::uint32_t pcie_generation;  // with 16 lanes
  std::uint32_t pci_device_id;
  bool mig;
};

BoardFacts board_facts(std::string_view product, Architecture architecture);

}  // namespace derate::fakenvml
