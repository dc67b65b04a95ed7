// Rows of a GPU's tenants for metrics: counters of whole millijoules that never go back and add up
// to the board's, in a bounded number of rows however many tenants come and go.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "attrib/gpu_attribution.h"
#include "core/tenancy.h"

namespace derate {

struct TenantRow {
  std::string key;  // the tenant's, unique on its GPU
  TenantLabels who;
  std::int64_t energy_mj = 0;  // since it got its row
  std::optional<Watts> power;  // of the newest tick; empty: it was not in it
  Instant seen{};              // the newest tick in which it was
};

struct TenantRowSums {
  std::vector<TenantRow> rows;
  // Of those who had no row when they used it; in the newest tick, and how many they were then.
  std::int64_t other_mj = 0;
  std::optional<Watts> other_power;  // empty: there were none
  std::size_t others = 0;
  std::int64_t ended_mj = 0;  // of rows that are gone
};

// A bounded number of rows, and one for all who have none.
class TenantRowTable {
 public:
  // A row stays for that long after its tenant was last seen, so that its end is read, too.
  static constexpr Duration kKeepEnded = GpuAttribution::kForgetAfter;

  struct Used {
    const std::string* key = nullptr;
    const TenantLabels* who = nullptr;
    std::int64_t energy_mj = 0;
  };

  explicit TenantRowTable(std::size_t most) : most_(most) {}

  // A tick: `used` has each key once. Who has no row gets one while there are any, who used more
  // first. What a tenant used before it got its row stays in `other_mj`.
  void add(std::span<const Used> used, Duration length, Instant now);
  // Used by somebody who is not known any more.
  void add_other(std::int64_t energy_mj) { sums_.other_mj += energy_mj; }
  const TenantRowSums& sums() const { return sums_; }

 private:
  TenantRow* find(const std::string& key);
  void forget_power();
  void drop_ended(Instant now);
  void add_newcomers(std::vector<const Used*> used, Duration length, Instant now);

  std::size_t most_;
  TenantRowSums sums_;
  std::map<std::string, std::size_t> places_;  // in the rows, by key
};

// What is known of the tenants of one GPU; it never changes.
struct TenantTable {
  GpuId id;
  Instant time{};     // of the newest tick
  Duration length{};  // of the same
  // board = unallocated + tenants' rows + other + ended
  //       = unallocated + owners' rows + other + ended + unowned, exactly.
  std::int64_t board_mj = 0, unallocated_mj = 0;
  std::optional<Watts> board_power, unallocated_power;  // of the newest tick
  TenantRowSums tenants;
  // The same by owner: what shares instance, pod, container and job is one row, and what has none
  // of them is in `unowned`.
  TenantRowSums owners;
  std::int64_t unowned_mj = 0;
  std::optional<Watts> unowned_power;
  std::vector<GpuInstance> instances;  // of the newest reading; empty without MIG
};

// Of all GPUs whose energy is attributed, from their pictures.
class TenantRows {
 public:
  static constexpr std::size_t kMostRows = 64;
  static constexpr std::size_t kMostInstances = 64;

  // `most`: rows of tenants a GPU, at least 1.
  explicit TenantRows(std::size_t most = kMostRows) : most_(most) {}

  // The instances of a reading of that GPU.
  void read(const GpuId& gpu, const Tenancy& tenancy);
  // Of the newest readings, by the GPU's UUID.
  const std::map<std::string, std::vector<GpuInstance>>& instances() const { return instances_; }
  // The newest pictures. Each tick makes one: of a tick that was missed, what tenants used is
  // `other`.
  void take(std::span<const std::shared_ptr<const AttributionPicture>> pictures, Instant now);
  // None of them changes.
  const std::vector<std::shared_ptr<const TenantTable>>& tables() const { return tables_; }

 private:
  struct Gpu {
    std::shared_ptr<const AttributionPicture> picture;  // the newest that was taken
    TenantRowTable tenants, owners;
    TenantTable table;
  };
  Gpu& find_or_add(const GpuId& id);
  static bool take(Gpu& gpu, const AttributionPicture& picture, Instant now);
  static void take_tick(Gpu& gpu, const AttributionPicture& picture, Instant now);
  void publish(const Gpu& gpu);

  std::size_t most_;
  std::vector<Gpu> gpus_;
  std::map<std::string, std::vector<GpuInstance>> instances_;  // by UUID
  std::vector<std::shared_ptr<const TenantTable>> tables_;
};

}  // namespace derate
