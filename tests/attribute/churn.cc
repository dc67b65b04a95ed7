#include "churn.h"

#include <malloc.h>

#include <algorithm>
#include <random>

#include "attrib/energy_accounts.h"
#include "attrib/online_split.h"
#include "attrib/tick_source.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

struct Guest {
  GpuProcess process;
  std::string key;
  double watts = 0;  // of its whole time share
  Instant ends{};
};

// The processes of a board that draws what their time shares say.
class Hotel {
 public:
  explicit Hotel(const Churn& churn) : churn_(churn) {}

  void live(Instant now) {
    std::erase_if(guests_, [&](const Guest& guest) { return guest.ends <= now; });
    for (; next_ <= now; next_ += churn_.process_every) check_in(now);
    std::uniform_real_distribution<double> any(0, 1);
    double watts = 80 + (guests_.empty() ? 0 : 45);
    for (Guest& guest : guests_) {
      const double busy = any(random_) / static_cast<double>(guests_.size());
      guest.process.sm_utilisation = guest.process.memory_utilisation = Fraction(busy);
      watts += guest.watts * busy;
    }
    joules_ += watts;
  }
  Tenancy reading(Instant now) const {
    Tenancy out;
    out.board.time = now;
    out.board.energy = Joules(joules_);
    out.board.sm_clock = Megahertz(1755);
    for (const Guest& guest : guests_) out.processes.push_back(guest.process);
    return out;
  }
  TenantKeys keys() const {
    TenantKeys out;
    for (const Guest& guest : guests_) out.processes.push_back(guest.key);
    return out;
  }
  std::uint64_t came() const { return came_; }

 private:
  void check_in(Instant now) {
    std::uniform_int_distribution<int> life(30, 300), watts(100, 600);
    Guest guest{.key = "boot/" + std::to_string(++came_), .watts = double(watts(random_))};
    guest.process.pid = static_cast<std::int64_t>(1000 + came_ % 30'000);
    guest.ends = now + std::chrono::seconds(life(random_));
    guests_.push_back(std::move(guest));
  }

  Churn churn_;
  std::mt19937_64 random_{1};
  std::vector<Guest> guests_;
  Instant next_{};
  double joules_ = 0;
  std::uint64_t came_ = 0;
};

}  // namespace

ChurnCounts run_churn(const Churn& churn) {
  Hotel hotel(churn);
  TickSource source;
  const auto method = make_online_split({.chip = "H200", .highest_clock = Megahertz(1980)});
  EnergyAccounts accounts;
  ChurnCounts out;
  for (Instant now{}; now < Instant{} + churn.length; now += 1s) {
    hotel.live(now);
    const auto sourced = source.next(hotel.reading(now), hotel.keys());
    if (!sourced) continue;
    const PowerEstimate estimate = method->step(sourced->tick);
    if (const auto split = allocate_energy(sourced->tick, estimate, IdleRule::unallocated))
      accounts.add(*split, now);
    out.closed += accounts.close_unseen(now - churn.forget_after).size();
    if (++out.ticks % 3600 == 0) out.in_use.push_back(::mallinfo2().uordblks);
    out.tenants = std::max(out.tenants, sourced->tick.tenants.size());
    out.open_accounts = std::max(out.open_accounts, accounts.open().size());
  }
  out.processes = hotel.came();
  out.unsettled_mj =
      accounts.board().board_mj - accounts.board().unallocated_mj - accounts.closed_mj();
  for (const auto& [key, account] : accounts.open()) out.unsettled_mj -= account.sums.total_mj();
  return out;
}

}  // namespace derate
