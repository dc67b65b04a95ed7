#include "device/sim/sim_mig.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace derate {
namespace {

// Multiprocessors: NVIDIA's MIG user guide (A100: 14 a slice, 98 in all), and 16 a slice with 132
// in all on an H100 (its 3g has 60); memory per profile from the same guide.
constexpr MigProfile kA100[] = {{"1g.10gb", 1, 1, 14, 9.5},
                                {"2g.20gb", 2, 2, 28, 19.5},
                                {"3g.40gb", 3, 4, 42, 39.25},
                                {"4g.40gb", 4, 4, 56, 39.25},
                                {"7g.80gb", 7, 8, 98, 79.25}};
constexpr MigProfile kH100[] = {{"1g.10gb", 1, 1, 16, 9.75},
                                {"2g.20gb", 2, 2, 32, 19.62},
                                {"3g.40gb", 3, 4, 60, 39.5},
                                {"4g.40gb", 4, 4, 64, 39.5},
                                {"7g.80gb", 7, 8, 132, 79.25}};
constexpr MigProfile kH200[] = {{"1g.18gb", 1, 1, 16, 16.0},
                                {"2g.35gb", 2, 2, 32, 32.5},
                                {"3g.71gb", 3, 4, 60, 69.5},
                                {"4g.71gb", 4, 4, 64, 69.5},
                                {"7g.141gb", 7, 8, 132, 140.0}};

std::string known_names(std::span<const MigProfile> profiles) {
  std::string names;
  for (const MigProfile& profile : profiles)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", profile.name);
  return names;
}

const MigProfile* find_profile(std::span<const MigProfile> profiles, std::string_view name) {
  for (const MigProfile& profile : profiles) {
    const std::string_view known = profile.name;
    if (name == known || name == known.substr(0, known.find('.'))) return &profile;
  }
  return nullptr;
}

}  // namespace

std::span<const MigProfile> mig_profiles(const SimChip& chip) {
  const std::string_view name = chip.name;
  if (name.starts_with("A100")) return kA100;
  if (name.starts_with("H100")) return kH100;
  if (name.starts_with("H200")) return kH200;
  return {};
}

Result<std::vector<GpuInstance>> make_instances(const SimChip& chip, std::string_view layout,
                                                int first) {
  const auto profiles = mig_profiles(chip);
  if (profiles.empty()) return Error{Errc::not_supported, fmt::format("{} has no MIG", chip.name)};
  std::vector<GpuInstance> out;
  int slices = 0, memory_slices = 0;
  for (const std::string_view part : split(layout, ',')) {
    if (trim(part).empty() && layout.empty()) break;
    const MigProfile* profile = find_profile(profiles, trim(part));
    if (profile == nullptr)
      return Error{Errc::invalid_argument, fmt::format("MIG profile '{}': {} has {}", part,
                                                       chip.name, known_names(profiles))};
    slices += profile->slices;
    memory_slices += profile->memory_slices;
    const int id = static_cast<int>(out.size()) + 1;
    out.push_back({.id = id,
                   .uuid = fmt::format("MIG-51a00000-0000-0000-{:04x}-{:012x}", first, id),
                   .profile = profile->name,
                   .slices = profile->slices,
                   .memory_slices = profile->memory_slices,
                   .multiprocessors = profile->multiprocessors,
                   .memory_bytes = profile->memory_gigabytes * 1073741824.0});
  }
  if (slices > profiles.back().slices || memory_slices > profiles.back().memory_slices)
    return Error{Errc::invalid_argument,
                 fmt::format("MIG layout '{}': {} compute and {} memory slices; {} has {} and {}",
                             layout, slices, memory_slices, chip.name, profiles.back().slices,
                             profiles.back().memory_slices)};
  return out;
}

}  // namespace derate
