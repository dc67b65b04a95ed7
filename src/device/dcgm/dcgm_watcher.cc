#include "device/dcgm/dcgm_watcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace derate {
namespace {

using namespace std::chrono_literals;

// An engine that restarts is found again within two of these; one that was never there is looked
// for seldom.
constexpr Duration kConnectEvery = 2s, kConnectSeldom = 30s;
constexpr int kQuickTries = 30;
// MIG instances come and go without a word.
constexpr Duration kRenewEvery = 10s;
constexpr Duration kRetryBusy = 2s, kRetryRefused = 5min;
// Values are there this long after their time (assumed; the engine and we share a machine).
constexpr Duration kLookAfter = 10ms;
constexpr Duration kLookAtLeast = 20ms;
constexpr Duration kSilentAfter = 3s;
// New values that are the same to the last bit so often stand still: they are means of counts of
// cycles.
constexpr int kMostRepeats = 4;

// A part that does nothing, or always the same thing, is 0 or 1 for ever.
bool moves(const Activity& activity) {
  const auto shares = activity_shares();
  return std::any_of(shares.begin(), shares.end(), [&](const ActivityShare& share) {
    const auto& value = activity.*share.member;
    return value && *value > Fraction(0) && *value < Fraction(1);
  });
}

}  // namespace

Instant DcgmWatcher::look(const DcgmNeeds& needs) {
  const Instant now = clock_.now();
  const bool needed = std::any_of(needs.begin(), needs.end(),
                                  [&](const auto& need) { return need.second.until > now; });
  if (engine_ == nullptr && needed && now >= connect_at_) connect(now);
  if (engine_ == nullptr) return needed ? connect_at_ : now + kConnectEvery;
  if (const auto kept = keep_watches(needs, now); !kept.ok()) {
    lose(now, kept.error());
    return connect_at_;
  }
  if (!watches_.empty()) {
    const auto readings = engine_->read();
    if (!readings.ok()) {
      lose(now, readings.error());
      return connect_at_;
    }
    for (const DcgmReading& reading : *readings) note(reading);
  }
  drop_old(clock_.now());
  note_silent(clock_.now());
  return next_look(clock_.now());
}

void DcgmWatcher::connect(Instant now) {
  auto connected = connect_();
  connect_at_ = now + (failures_ < kQuickTries ? kConnectEvery : kConnectSeldom);
  if (!connected.ok()) {
    ++failures_;
    state_.problem = connected.error().message;
    return;
  }
  failures_ = 0;
  engine_ = std::move(connected->engine);
  state_.problem.clear();
  state_.engine = fmt::format("{}{}at {}", engine_->version(),
                              engine_->version().empty() ? "" : " ", to_string(connected->address));
}

// All that the engine knew of us is gone with the connection.
void DcgmWatcher::lose(Instant now, const Error& error) {
  engine_.reset();
  watches_.clear();
  seen_.clear();
  state_ = {.engine = {}, .problem = error.message, .news = {}, .gpu_problems = {}};
  connect_at_ = std::max(connect_at_, now + 500ms);
}

Result<void> DcgmWatcher::keep_watches(const DcgmNeeds& needs, Instant now) {
  for (auto at = watches_.begin(); at != watches_.end();) {
    const auto need = needs.find(at->first);
    if (need != needs.end() && need->second.until > now) {
      ++at;
      continue;
    }
    engine_->unwatch(at->first);
    state_.gpu_problems.erase(at->first);
    std::erase_if(state_.news, [&](const auto& each) { return each.first.first == at->first; });
    std::erase_if(seen_, [&](const auto& each) { return each.first.first == at->first; });
    at = watches_.erase(at);
  }
  for (const auto& [uuid, need] : needs)
    if (need.until > now) TRY(keep_watch(uuid, need.period, now));
  return {};
}

// A GPU that cannot be watched costs the others nothing; a connection that is lost costs all.
Result<void> DcgmWatcher::keep_watch(const std::string& uuid, Duration period, Instant now) {
  GpuWatch& watch = watches_[uuid];
  if (now < watch.renew_at && (watch.period == period || !watch.works)) return {};
  const auto begun = engine_->watch(uuid, period);
  const bool continued = watch.works && watch.period == period;
  watch = {.period = period,
           .renew_at = now + kRenewEvery,
           .works = begun.ok(),
           .renewed = continued ? watch.renewed : now};
  if (begun.ok()) {
    if (!continued) state_.gpu_problems.erase(uuid);
    return {};
  }
  if (begun.error().code == Errc::io) return begun.error();
  watch.renew_at = now + (begun.error().code == Errc::busy ? kRetryBusy : kRetryRefused);
  state_.gpu_problems[uuid] = begun.error().message;
  return {};
}

// Time of day may jump: what counts is when a new value came, and the age that it had then.
void DcgmWatcher::note(const DcgmReading& reading) {
  const DcgmPart part{reading.uuid, reading.gpu_instance};
  Seen& seen = seen_[part];
  if (seen.time == reading.time) return;
  const bool same = seen.activity == reading.activity && moves(reading.activity);
  seen = {reading.time, reading.activity, same ? seen.repeats + 1 : 0};
  GpuWatch& watch = watches_[reading.uuid];
  const Duration period = watch.period;
  const Duration age = clock_.wall_now() - reading.time;
  if (age > 2 * period || age < -period) return;
  watch.renewed = clock_.now();
  if (seen.repeats > kMostRepeats) {
    state_.gpu_problems[reading.uuid] = "the host engine's values stand still";
    state_.news.erase(part);
    return;
  }
  state_.gpu_problems.erase(reading.uuid);
  state_.news[part] = {reading.activity, clock_.now() - std::max(age, Duration{}), period};
}

void DcgmWatcher::drop_old(Instant now) {
  std::erase_if(state_.news,
                [&](const auto& each) { return now - each.second.taken > 2 * each.second.period; });
}

// Paused profiling gives blanks; so do engines whose hardware another program has taken.
void DcgmWatcher::note_silent(Instant now) {
  for (const auto& [uuid, watch] : watches_)
    if (watch.works && now - watch.renewed > std::max<Duration>(kSilentAfter, 3 * watch.period))
      state_.gpu_problems[uuid] =
          "the host engine has no new values: profiling is paused, another program has it, or "
          "they come late";
}

// Just after the next values are due.
Instant DcgmWatcher::next_look(Instant now) const {
  if (watches_.empty()) return now + kConnectEvery;
  Instant due = Instant::max();
  for (const auto& [uuid, watch] : watches_) {
    const auto news = state_.news.find({uuid, std::nullopt});
    const bool known = news != state_.news.end();
    due =
        std::min(due, known ? news->second.taken + watch.period + kLookAfter : now + watch.period);
  }
  return std::max(due, now + kLookAtLeast);
}

Result<DcgmWatcher::Connected> connect_dcgm(const std::vector<DcgmAddress>& addresses) {
  Error none{Errc::not_found, "no address of a host engine is known"};
  for (const DcgmAddress& address : addresses) {
    const auto trusted = check_listeners(address, listeners_of(address), ::geteuid());
    if (!trusted.ok()) {
      // The worst reason of all is reported: another user's engine rather than none.
      if (none.code == Errc::not_found) none = trusted.error();
      continue;
    }
    auto library = TRY(DcgmLibrary::load());
    auto engine = TRY(DcgmEngine::connect(std::move(library), address));
    return DcgmWatcher::Connected{std::move(engine), address};
  }
  return none;
}

}  // namespace derate
