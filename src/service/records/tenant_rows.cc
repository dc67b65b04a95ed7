#include "service/records/tenant_rows.h"

#include <algorithm>
#include <utility>

namespace derate {
namespace {

std::optional<Watts> power_of(std::int64_t energy_mj, Duration length) {
  if (length <= Duration::zero()) return std::nullopt;
  return Joules(static_cast<double>(energy_mj) / 1000) / length;
}

bool has_owner(const TenantLabels& who) {
  return !who.instance.empty() || !who.pod.empty() || !who.container.empty() || !who.job.empty();
}

// What it is of, without whose process it is.
TenantLabels owner_of(const TenantLabels& who) {
  TenantLabels out = who;
  out.pid.reset();
  out.process.clear();
  out.user.clear();
  return out;
}

// No part holds a line's end: names are printing text.
std::string owner_key(const TenantLabels& who) {
  std::string out;
  for (const auto* part : {&who.instance, &who.name_space, &who.pod, &who.container, &who.job})
    out.append(*part).append("\n");
  return out;
}

void give(TenantRow& row, const TenantRowTable::Used& used, Duration length, Instant now) {
  row.who = *used.who;
  row.energy_mj += used.energy_mj;
  row.power = power_of(used.energy_mj, length);
  row.seen = now;
}

}  // namespace

TenantRow* TenantRowTable::find(const std::string& key) {
  const auto at = places_.find(key);
  return at == places_.end() ? nullptr : &sums_.rows[at->second];
}

void TenantRowTable::forget_power() {
  for (TenantRow& row : sums_.rows) row.power.reset();
  sums_.other_power.reset();
  sums_.others = 0;
}

void TenantRowTable::drop_ended(Instant now) {
  const auto ended = [&](const TenantRow& row) { return now - row.seen > kKeepEnded; };
  if (std::none_of(sums_.rows.begin(), sums_.rows.end(), ended)) return;
  for (const TenantRow& row : sums_.rows)
    if (ended(row)) sums_.ended_mj += row.energy_mj;
  std::erase_if(sums_.rows, ended);
  places_.clear();
  for (std::size_t at = 0; at < sums_.rows.size(); ++at) places_[sums_.rows[at].key] = at;
}

void TenantRowTable::add(std::span<const Used> used, Duration length, Instant now) {
  forget_power();
  std::vector<const Used*> newcomers;
  for (const Used& each : used) {
    if (TenantRow* row = find(*each.key))
      give(*row, each, length, now);
    else
      newcomers.push_back(&each);
  }
  // After those who were away are seen again, and before others ask for the places.
  drop_ended(now);
  add_newcomers(std::move(newcomers), length, now);
}

void TenantRowTable::add_newcomers(std::vector<const Used*> used, Duration length, Instant now) {
  std::stable_sort(used.begin(), used.end(),
                   [](const Used* a, const Used* b) { return a->energy_mj > b->energy_mj; });
  std::int64_t other = 0;
  for (const Used* each : used) {
    if (sums_.rows.size() < most_) {
      places_[*each->key] = sums_.rows.size();
      give(sums_.rows.emplace_back(TenantRow{.key = *each->key}), *each, length, now);
      continue;
    }
    other += each->energy_mj;
    ++sums_.others;
  }
  sums_.other_mj += other;
  if (sums_.others > 0) sums_.other_power = power_of(other, length);
}

void TenantRows::read(const GpuId& gpu, const Tenancy& tenancy) {
  auto& kept = instances_[gpu.uuid];
  kept = tenancy.instances;
  if (kept.size() > kMostInstances) kept.resize(kMostInstances);
}

TenantRows::Gpu& TenantRows::find_or_add(const GpuId& id) {
  const auto at = std::find_if(gpus_.begin(), gpus_.end(),
                               [&](const Gpu& each) { return each.table.id.uuid == id.uuid; });
  if (at != gpus_.end()) return *at;
  return gpus_.emplace_back(
      Gpu{nullptr, TenantRowTable(most_), TenantRowTable(most_), TenantTable{.id = id}});
}

// Who used what in the newest tick.
void TenantRows::take_tick(Gpu& gpu, const AttributionPicture& picture, Instant now) {
  std::vector<TenantRowTable::Used> tenants, owners;
  std::map<std::string, std::pair<TenantLabels, std::int64_t>> by_owner;
  std::int64_t unowned = 0;
  for (const AttributionPicture::Tenant& each : picture.tenants) {
    const std::int64_t energy = each.newest.total_mj();
    tenants.push_back({&each.newest.key, &each.who, energy});
    if (has_owner(each.who)) {
      const TenantLabels owner = owner_of(each.who);
      by_owner.emplace(owner_key(owner), std::pair(owner, 0)).first->second.second += energy;
    } else {
      unowned += energy;
    }
  }
  for (const auto& [key, owner] : by_owner) owners.push_back({&key, &owner.first, owner.second});
  TenantTable& table = gpu.table;
  table.length = picture.newest ? picture.newest->length : Duration{};
  gpu.tenants.add(tenants, table.length, now);
  gpu.owners.add(owners, table.length, now);
  table.unowned_mj += unowned;
  table.unowned_power = power_of(unowned, table.length);
  table.board_power = power_of(picture.newest ? picture.newest->board_mj : 0, table.length);
  table.unallocated_power =
      power_of(picture.newest ? picture.newest->unallocated_mj : 0, table.length);
}

// False: nothing has come since the picture before.
bool TenantRows::take(Gpu& gpu, const AttributionPicture& picture, Instant now) {
  const BoardSums& sums = picture.board;
  BoardSums before = gpu.picture == nullptr ? BoardSums{} : gpu.picture->board;
  if (gpu.picture != nullptr && sums.time + sums.lost == before.time + before.lost) return false;
  // Its accounts have begun anew.
  if (sums.board_mj < before.board_mj || sums.unallocated_mj < before.unallocated_mj) before = {};
  const std::int64_t board = sums.board_mj - before.board_mj;
  const std::int64_t unallocated = sums.unallocated_mj - before.unallocated_mj;
  gpu.table.id = picture.id;
  gpu.table.time = now;
  gpu.table.board_mj += board;
  gpu.table.unallocated_mj += unallocated;
  take_tick(gpu, picture, now);
  std::int64_t missed = board - unallocated;  // by ticks whose picture was never taken
  for (const auto& each : picture.tenants) missed -= each.newest.total_mj();
  if (missed < 0) {  // accounts that began anew and have come further: they still add up
    gpu.table.board_mj -= missed;
    missed = 0;
  }
  gpu.tenants.add_other(missed);
  gpu.owners.add_other(missed);
  return true;
}

void TenantRows::publish(const Gpu& gpu) {
  auto table = std::make_shared<TenantTable>(gpu.table);
  table->tenants = gpu.tenants.sums();
  table->owners = gpu.owners.sums();
  if (const auto at = instances_.find(table->id.uuid); at != instances_.end())
    table->instances = at->second;
  const auto known = std::find_if(tables_.begin(), tables_.end(), [&](const auto& each) {
    return each->id.uuid == table->id.uuid;
  });
  if (known == tables_.end())
    tables_.push_back(std::move(table));
  else
    *known = std::move(table);
}

void TenantRows::take(std::span<const std::shared_ptr<const AttributionPicture>> pictures,
                      Instant now) {
  for (const auto& picture : pictures) {
    Gpu& gpu = find_or_add(picture->id);
    if (gpu.picture == picture) continue;
    const bool news = take(gpu, *picture, now);
    gpu.picture = picture;
    if (news) publish(gpu);
  }
}

}  // namespace derate
