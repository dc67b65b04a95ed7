// Attribution of one GPU: makes ticks of readings of its tenancy, splits their energy and adds it
// to the tenants' accounts.
#pragma once

#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "attrib/allocate_energy.h"
#include "attrib/energy_accounts.h"
#include "attrib/program_memory.h"
#include "attrib/split.h"
#include "attrib/tick_source.h"
#include "core/capability.h"
#include "core/tenant_names.h"

namespace derate {

struct AttributionRules {
  const SplitMethodInfo* method = nullptr;
  IdleRule idle_rule = IdleRule::unallocated;

  bool operator==(const AttributionRules&) const = default;
};

// Of an empty name the first method that there is.
// Errors: not_found, invalid_argument naming what there is; not_supported for a method of the lab.
Result<AttributionRules> attribution_rules(const std::string& method, const std::string& idle_rule);

// What a method may know of the board beforehand.
BoardFacts board_facts(const Capability& capability);

// The energy that each tenant of one GPU has used, as it is known at one time.
struct AttributionPicture {
  struct Tenant {
    TenantEnergy newest;  // of the newest tick
    TenantLabels who;
    TenantSums sums;  // since it was first seen
    std::optional<double> memory_bytes;
  };
  struct Tick {
    Duration length{};
    std::int64_t board_mj = 0, unallocated_mj = 0;
    std::optional<Fraction> unexplained;  // PowerEstimate
  };
  GpuId id;
  const SplitMethodInfo* method = nullptr;
  IdleRule idle_rule = IdleRule::unallocated;
  BoardSums board;
  std::int64_t ended_mj = 0;   // of tenants that are not here now
  std::optional<Tick> newest;  // empty: none yet, or one without energy
  std::vector<Tenant> tenants;
  std::string reason;  // why something is missing; empty: nothing is
};
// docs/attribute.md.
nlohmann::ordered_json picture_json(const AttributionPicture& picture);

class GpuAttribution {
 public:
  // A tenant that was not seen for that long is no longer told apart from others that ended.
  static constexpr Duration kForgetAfter = std::chrono::minutes(10);
  // Of readings in between, at most so many wait for the tick that they belong to.
  static constexpr std::size_t kMostWatched = 1000;

  struct Taken {
    SourcedTick sourced;
    std::optional<Split> split;  // empty: without energy
  };

  // GPUs of one product share `programs`.
  GpuAttribution(GpuId id, BoardFacts facts, const AttributionRules& rules,
                 std::shared_ptr<ProgramMemory> programs = std::make_shared<ProgramMemory>());

  // Another method begins to learn anew; what was used stays.
  void rules(const AttributionRules& rules);
  // A reading of the board between those of its tenancy.
  void watch(const Sample& board);
  // What was watched until `end`; it is kept no longer.
  ClockSummary watched(Instant end);
  // A reading, who is in it, and what was watched before it. Null: it made no tick.
  const Taken* take(const Tenancy& now, const TenantNames& names, const ClockSummary& before = {});
  // A reading failed; empty: it did not. A missed reading makes the next tick longer.
  void failed(std::string why) { trouble_ = std::move(why); }
  // The GPU was closed: nobody bears the energy of a long tick that spans that.
  void cut() { cut_ = true; }

  const GpuId& id() const { return id_; }
  const AttributionRules& rules() const { return rules_; }
  const EnergyAccounts& accounts() const { return accounts_; }
  const std::string& trouble() const { return trouble_; }
  // Empty labels for a key that is not known.
  TenantLabels labels(const std::string& key) const;
  AttributionPicture picture() const;

 private:
  void name_programs(AttribTick& tick) const;
  void note_memory(const Tenancy& now, const TenantNames& names);

  GpuId id_;
  BoardFacts facts_;
  AttributionRules rules_;
  std::unique_ptr<SplitMethod> method_;
  std::shared_ptr<ProgramMemory> programs_;
  TickSource source_;
  std::deque<std::pair<Instant, ClockSummary>> watched_;  // ascending by time
  EnergyAccounts accounts_;
  std::map<std::string, TenantLabels> labels_;
  // By key, of the newest reading; empty: of a part of it the driver does not say it.
  std::map<std::string, std::optional<double>> memory_bytes_;
  std::optional<Taken> newest_;
  std::string trouble_;
  bool cut_ = false;
};

}  // namespace derate
