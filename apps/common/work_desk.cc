#include "work_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace derate::cli {
namespace {

constexpr Duration kListExpires = std::chrono::seconds(10);
constexpr std::size_t kLongestName = 64;

// A program's name without its folder and without what a terminal would obey.
std::string plain_name(const std::string& name) {
  std::string out = name.substr(name.find_last_of('/') + 1, kLongestName);
  for (char& c : out)
    if (c < ' ' || c > '~') c = '?';
  return out;
}

}  // namespace

void WorkDesk::hear(std::string_view text, const BeatServer::Sender& sender) {
  if (!book_.admit(sender.uid, clock_.now())) return;
  const auto message = parse_beat(text);
  if (!message.ok()) return book_.note_malformed();
  const std::int64_t pid = message->pid != 0 ? message->pid : sender.pid;
  const auto known = known_.find(pid);
  const auto facts = known != known_.end() ? known->second : options_.read(pid);
  news_ = true;
  book_.hear(*message, {sender.uid, sender.pid}, facts, sender.time);
}

void WorkDesk::begin_listing(std::span<const Gpu> gpus) {
  const Instant now = clock_.now();
  if (next_listing_ && now < *next_listing_) return;
  next_listing_ = now + list_every_;
  listings_.resize(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Listing& listing = listings_[i];
    if (listing.source != gpus[i].source) listing = Listing{gpus[i].source};
    if (listing.under_way) continue;  // of a GPU that is slow: its answer is not thrown away
    gpus[i].source->start_processes();
    listing.under_way = true;
  }
}

void WorkDesk::collect(std::span<const Gpu> gpus) {
  const Instant now = clock_.now();
  listings_.resize(gpus.size());
  bool listed_anew = false;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Listing& listing = listings_[i];
    if (listing.source != gpus[i].source) listing = Listing{gpus[i].source};
    if (!listing.under_way) continue;
    auto listed = gpus[i].source->poll_processes();
    if (!listed) continue;
    listing.under_way = false;
    listed_anew = true;
    if (listed->ok()) {
      listing.processes = **std::move(listed);
      listing.listed = now;
    } else if (now - listing.listed > kListExpires) {
      listing.processes.clear();
    }
  }
  if (!listed_anew) return;
  know();
  news_ = true;
}

// Reads of each process once what the kernel knows of it: one that is still listed is still the
// same, and its environment is that of its start.
void WorkDesk::know() {
  std::map<std::int64_t, ProcessFacts> now;
  const auto look = [&](std::int64_t pid) -> const ProcessFacts* {
    if (const auto at = now.find(pid); at != now.end()) return &at->second;
    auto old = known_.extract(pid);
    if (!old.empty()) return &now.insert(std::move(old)).position->second;
    auto facts = options_.read(pid);
    if (!facts) return nullptr;
    if (!facts->asked.empty())
      if (const auto asked = parse_asked_loss(facts->asked); !asked.ok())
        options_.tell(fmt::format("process {}: {}", pid, asked.error().message));
    return &now.emplace(pid, *std::move(facts)).first->second;
  };
  for (const Listing& listing : listings_)
    for (const GpuProcess& process : listing.processes)
      if (process.pid > 0) look(process.pid);
  if (command_ != 0) {
    const ProcessFacts* facts = look(command_);
    command_facts_ = facts != nullptr ? std::optional(*facts) : std::nullopt;
  }
  known_ = std::move(now);
}

std::vector<Tenant> WorkDesk::tenants_of(const Listing& listing) const {
  std::vector<Tenant> out;
  for (const GpuProcess& process : listing.processes) {
    Tenant tenant;
    if (const auto at = known_.find(process.pid); at != known_.end())
      tenant.process = at->second;
    else if (process.pid <= 0 && command_facts_)
      tenant.process = *command_facts_;
    tenant.process.name = plain_name(process.name.empty() ? tenant.process.name : process.name);
    tenant.sm_utilisation = process.sm_utilisation;
    out.push_back(std::move(tenant));
  }
  return out;
}

void WorkDesk::add_command(std::vector<GpuTenants>& gpus) const {
  if (!command_facts_) return;
  const auto of_command = [&](const Tenant& tenant) {
    const auto& above = tenant.process.ancestors;
    return tenant.process.pid == command_facts_->pid ||
           std::find(above.begin(), above.end(), command_facts_->pid) != above.end();
  };
  for (const GpuTenants& gpu : gpus)
    if (std::any_of(gpu.tenants.begin(), gpu.tenants.end(), of_command)) return;
  for (GpuTenants& gpu : gpus) gpu.tenants.push_back({*command_facts_, std::nullopt});
}

std::vector<GpuTenants> WorkDesk::tenants(std::span<const Gpu> gpus) const {
  std::vector<GpuTenants> out;
  for (std::size_t i = 0; i < gpus.size(); ++i)
    out.push_back(
        {gpus[i].source->capability().id, tenants_of(listings_[i]), gpus[i].policy_delta});
  add_command(out);
  return out;
}

const std::vector<GpuWork>& WorkDesk::update(std::span<const Gpu> gpus) {
  collect(gpus);
  // Between listings only a beat is news; who has fallen silent is found at the next one.
  if (!news_ && work_.size() == gpus.size()) return work_;
  news_ = false;
  tenants_ = tenants(gpus);
  work_ = book_.status(tenants_, rules_, clock_.now());
  return work_;
}

bool WorkDesk::works_on(const std::string& gpu, std::uint32_t uid) const {
  const auto is_his = [&](const Tenant& tenant) { return tenant.process.uid == uid; };
  return std::any_of(tenants_.begin(), tenants_.end(), [&](const GpuTenants& each) {
    return each.id.uuid == gpu && std::any_of(each.tenants.begin(), each.tenants.end(), is_his);
  });
}

Json WorkDesk::beats_json() const {
  const BeatCounts& counts = book_.counts();
  return {{"heard", counts.heard},
          {"malformed", counts.malformed},
          {"too_many", counts.too_many},
          {"unplaced", counts.unplaced}};
}

}  // namespace derate::cli
