#include "device/dcgm/dcgm_watcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "device/dcgm/dcgm_listeners.h"

namespace derate {
namespace {

using namespace std::chrono_literals;

// The watcher finds an engine that restarts within two of these. After a minute without an engine
// it looks seldom.
constexpr Duration kConnectEvery = 2s, kConnectSeldom = 30s;
constexpr int kQuickTries = 30;
// MIG instances come and go without a word.
constexpr Duration kRenewEvery = 10s;
constexpr Duration kRetry = 2s, kRetryRefused = 5min;
// A look without a need of any GPU: a new need wakes the thread.
constexpr Duration kLookUnneeded = 1h;
// The engine has stored a value this long after the value's time (assumed: it is on this machine).
constexpr Duration kLookAfter = 10ms;
constexpr Duration kLookAtLeast = 20ms;
constexpr Duration kSilentAfter = 3s;
// Means of counts of cycles differ. If more new values than these are the same to the last bit, the
// counters stand still (assumed).
constexpr int kMostRepeats = 2;

// A shared GPU is left now and then, to see whether another program still has it measured. How long
// that takes is the other's period: dcgm-exporter's default is 30 s.
constexpr Duration kSharedFor = 10min;
constexpr Duration kOwnAtMost = 10s;  // beyond now, of values of our own

Duration retry_after(Errc code) {
  const bool refused = code == Errc::not_supported || code == Errc::not_found;
  return refused ? kRetryRefused : kRetry;
}

// An idle or a full unit has a share of exactly 0 or 1, which may stay the same.
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
  if (engine_ == nullptr) return needed ? connect_at_ : now + kLookUnneeded;
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
  while (!watches_.empty()) forget(watches_.begin()->first);
  state_ = {.engine = {}, .problem = error.message, .news = {}, .gpu_problems = {}};
  connect_at_ = std::max(connect_at_, now + 500ms);
}

void DcgmWatcher::leave(const std::string& uuid) {
  engine_->unwatch(uuid);
  forget(uuid);
}

// A value that the engine was about to store for us comes a period later at most.
void DcgmWatcher::note_own(const std::string& uuid) {
  const GpuWatch& watch = watches_.at(uuid);
  if (watch.works) others_[uuid].own_until = clock_.wall_now() + 2 * watch.period;
}

void DcgmWatcher::forget(const std::string& uuid) {
  note_own(uuid);
  others_[uuid].first.reset();
  state_.gpu_problems.erase(uuid);
  std::erase_if(state_.news, [&](const auto& each) { return each.first.first == uuid; });
  std::erase_if(seen_, [&](const auto& each) { return each.first.first == uuid; });
  watches_.erase(uuid);
}

// An instance's number may be another instance's now.
void DcgmWatcher::forget_instances(const std::string& uuid) {
  const auto of_instance = [&](const auto& each) {
    return each.first.first == uuid && each.first.second;
  };
  std::erase_if(state_.news, of_instance);
  std::erase_if(seen_, of_instance);
}

Result<void> DcgmWatcher::keep_watches(const DcgmNeeds& needs, Instant now) {
  for (auto at = watches_.begin(); at != watches_.end();) {
    const auto need = needs.find(at->first);
    if (need != needs.end() && need->second.until > now) {
      ++at;
      continue;
    }
    const std::string uuid = at->first;
    ++at;
    leave(uuid);
  }
  for (const auto& [uuid, need] : needs)
    if (need.until > now) TRY(keep_watch(uuid, need, now));
  return {};
}

// Returns an error only if the connection is lost: the other GPUs go on without one that cannot be
// watched.
Result<void> DcgmWatcher::keep_watch(const std::string& uuid, const DcgmNeed& need, Instant now) {
  const Duration period = need.period;
  const auto before = watches_.find(uuid);
  const bool shared_long = use_ == DcgmUse::shared && before != watches_.end() &&
                           before->second.works && now - before->second.begun > kSharedFor;
  if (shared_long) {
    leave(uuid);
    others_[uuid].first = others_[uuid].own_until;  // the first value after that is another's
  }
  GpuWatch& watch = watches_[uuid];
  if (watch.works && watch.partition != need.partition) {
    forget_instances(uuid);
    watch.renew_at = now;
  }
  watch.partition = need.partition;
  if (now < watch.renew_at && (watch.period == period || !watch.works)) return {};
  const auto begun = begin_watch(uuid, period, watch.works);
  const bool continued = watch.works && watch.period == period;
  if (watch.works && !begun.ok()) note_own(uuid);
  watch = {.period = period,
           .renew_at = now + kRenewEvery,
           .partition = need.partition,
           .works = begun.ok(),
           .renewed = continued ? watch.renewed : now,
           .begun = watch.works ? watch.begun : now};
  if (begun.ok()) {
    if (!continued) state_.gpu_problems.erase(uuid);
    return {};
  }
  if (begun.error().code == Errc::io) return begun.error();
  watch.renew_at = now + retry_after(begun.error().code);
  state_.gpu_problems[uuid] = begun.error().message;
  return {};
}

// Errors: busy while no other program has the GPU measured; those of the engine's watch().
Result<void> DcgmWatcher::begin_watch(const std::string& uuid, Duration period, bool works) {
  if (!works && !TRY(may_measure(uuid)))
    return Error{Errc::busy,
                 "so far the host engine measures this GPU for no other program, and dcgm.use is "
                 "\"auto\""};
  return engine_->watch(uuid, period);
}

// Another program has it measured if new values come while we do not. A GPU that the engine does
// not have is left to watch(), whose error says so.
Result<bool> DcgmWatcher::may_measure(const std::string& uuid) {
  if (use_ != DcgmUse::shared) return use_ == DcgmUse::all;
  const auto newest = engine_->measured_at(uuid);
  if (!newest.ok() && newest.error().code == Errc::not_found) return true;
  if (!newest.ok()) return newest.error();
  Others& others = others_[uuid];
  if (others.own_until - clock_.wall_now() > kOwnAtMost) others = {};  // time of day was set back
  if (!*newest || **newest <= others.own_until) return false;
  if (!others.first) others.first = *newest;
  return **newest > *others.first;
}

// Time of day may jump: `taken` is the monotonic time at which a new value came, less the age that
// it had then. A GPU's problems are those of its whole, not of a MIG instance.
void DcgmWatcher::note(const DcgmReading& reading) {
  const DcgmPart part{reading.uuid, reading.gpu_instance};
  Seen& seen = seen_[part];
  if (seen.time == reading.time) return;
  const bool same = seen.activity == reading.activity && moves(reading.activity);
  GpuWatch& watch = watches_[reading.uuid];
  const Duration period = watch.period;
  // The first value after a gap, as of an engine that was stopped, is the mean over all of the gap.
  // An engine that is always slower than requested has no gaps.
  const Duration gap = seen.time != WallTime{} ? reading.time - seen.time : Duration{};
  const bool after_gap = gap > 2 * std::max(period, seen.gap);
  seen = {reading.time, reading.activity, same ? seen.repeats + 1 : 0, gap};
  const Duration age = clock_.wall_now() - reading.time;
  if (age > 2 * period || age < -period) return;
  watch.renewed = clock_.now();
  if (after_gap) return;
  const bool whole = !reading.gpu_instance;
  if (seen.repeats > kMostRepeats) {
    if (whole) state_.gpu_problems[reading.uuid] = "the host engine's values stand still";
    state_.news.erase(part);
    return;
  }
  if (whole) state_.gpu_problems.erase(reading.uuid);
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
  if (watches_.empty()) return now + kLookUnneeded;
  Instant due = Instant::max();
  for (const auto& [uuid, watch] : watches_) {
    if (!watch.works) {
      due = std::min(due, watch.renew_at);
      continue;
    }
    const auto news = state_.news.find({uuid, std::nullopt});
    const bool known = news != state_.news.end();
    due =
        std::min(due, known ? news->second.taken + watch.period + kLookAfter : now + watch.period);
  }
  return std::max(due, now + kLookAtLeast);
}

namespace {

Result<DcgmWatcher::Connected> connect_to(const std::shared_ptr<const DcgmLibrary>& library,
                                          const DcgmAddress& address) {
  TRY(check_listeners(address, listeners_of(address), ::geteuid()));
  auto engine = TRY(DcgmEngine::connect(library, address));
  // The engine may have gone, and another user may have come, before the connection was made.
  TRY(check_listeners(address, listeners_of(address), ::geteuid()));
  return DcgmWatcher::Connected{std::move(engine), address};
}

}  // namespace

Result<DcgmWatcher::Connected> connect_dcgm(const std::vector<DcgmAddress>& addresses) {
  std::string places;
  std::optional<Error> refused;
  for (const DcgmAddress& address : addresses) {
    places += (places.empty() ? "" : " or ") + to_string(address);
    if (listeners_of(address).empty()) continue;
    const auto library = TRY(DcgmLibrary::load());
    auto connected = connect_to(library, address);
    if (connected.ok()) return connected;
    // This error is reported rather than that nobody listens at another address.
    refused = connected.error();
  }
  if (refused) return *refused;
  return Error{Errc::not_found, "no host engine listens at " + places};
}

}  // namespace derate
