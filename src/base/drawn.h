// Random numbers by their place in a sequence: the same number whoever asks for it, and in any
// order.
#pragma once

#include <cstdint>

namespace derate {

// SplitMix64 (Steele, Lea, Flood 2014) of a place in the sequence of a seed.
inline std::uint64_t drawn_bits(std::uint64_t seed, std::uint64_t place) {
  std::uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (place + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

// Uniform in (0, 1).
inline double drawn(std::uint64_t seed, std::uint64_t place) {
  return (static_cast<double>(drawn_bits(seed, place) >> 11) + 0.5) * 0x1p-53;
}

}  // namespace derate
