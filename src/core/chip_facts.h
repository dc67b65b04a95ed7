// Facts of a product beyond those of its driver: clocks, and the end of its flat-voltage region.
// Facts with sources, not behaviour; a configuration overrides them.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/units.h"
#include "core/capability.h"

namespace derate {

struct ChipFacts {
  const char* chip;  // the name used in Derate: "V100-SXM2"
  // The name that NVML gives, without "NVIDIA", "Tesla" and "GeForce". A word that ends with "*GB"
  // stands for each size of the memory.
  const char* product;
  Architecture architecture;
  Megahertz flat_voltage_end;
  Megahertz highest_clock;
  Megahertz memory_clock;  // tells the chip of a trace that does not name it
  const char* source;
  bool assumed;  // the source is an inference, not a measurement of this product
};

std::span<const ChipFacts> chip_facts();

// By NVML product name ("NVIDIA A100-SXM4-80GB"); null when unknown. The whole name counts: an
// "H200 NVL" and a "GH200 480GB" are no H200.
const ChipFacts* facts_of_product(std::string_view product);
// Whether reading was tested on a real GPU of that product (docs/real-gpu.md).
bool was_tested(std::string_view product);
// Whether the energy counter of that product may be its whole module's, with the CPU: on a GH200 it
// is (ml-energy/zeus#172). For the other Grace products this is assumed.
bool counts_its_module(std::string_view product);
// By Derate's name of the chip, letters of any case; null when unknown.
const ChipFacts* facts_of_chip(std::string_view chip);

}  // namespace derate
