#include "service/workloads/workload_tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/json.h"
#include "base/printing.h"

namespace derate {
namespace {

constexpr Duration kListExpires = std::chrono::seconds(10);
constexpr Duration kRateExpires = 3 * LaunchReader::kRateOver;
constexpr std::size_t kLongestName = 64;

// A program's name without its folder and without what a terminal would obey.
std::string plain_name(const std::string& name) {
  return printing_prefix(std::string_view(name).substr(name.find_last_of('/') + 1), kLongestName);
}

// For the reading thread, which may outlive the clock of whoever asks.
std::function<Instant()> clock_of_readings(const Clock& clock, BackgroundWorker::Where where) {
  if (where == BackgroundWorker::Where::at_once) return [&clock] { return clock.now(); };
  return [] { return SystemClock().now(); };
}

}  // namespace

WorkloadTracker::WorkloadTracker(Clock& clock, Options options)
    : clock_(clock),
      options_(std::move(options)),
      launches_(clock_of_readings(clock, options_.where), options_.readers.start, options_.where),
      speakers_(std::make_shared<KnownSenders>(options_.readers)),
      facts_aside_(options_.where),
      users_aside_(options_.where),
      words_aside_(std::make_shared<BackgroundWorker>(options_.where)) {
  registry_.people(options_.person);
}

// --- users of the rules --------------------------------------------------------------------------

void WorkloadTracker::rules(const Settings& settings) {
  rules_ = promise_rules(settings);
  // Who was nobody may have been made since.
  std::erase_if(users_, [](const auto& user) { return !user.second; });
  apply_users();
  users_again_ = clock_.now();
  ask_users();
  collect_users();
  news_ = true;
}

void WorkloadTracker::apply_users() {
  for (const auto& user : rules_.users) {
    const auto known = users_.find(user.name);
    JobRule& rule = rules_.rules.rules[user.rule];
    rule.unknown = known == users_.end();
    rule.nobody = !rule.unknown && !known->second;
    rule.uid = rule.unknown ? std::nullopt : known->second;
  }
}

void WorkloadTracker::ask_users() {
  if (asked_users_.valid() || !users_again_ || clock_.now() < *users_again_) return;
  users_again_.reset();
  std::set<std::string> names;
  for (const auto& user : rules_.users) names.insert(user.name);
  if (names.empty()) return;
  asked_users_ = users_aside_.post([names = std::move(names), user = options_.readers.user] {
    Users out;
    for (const std::string& name : names) out.emplace(name, user(name));
    return out;
  });
}

void WorkloadTracker::collect_users() {
  if (!is_ready(asked_users_)) return;
  for (auto& [name, found] : asked_users_.get()) {
    const auto rule = std::find_if(rules_.users.begin(), rules_.users.end(),
                                   [&, &of = name](const auto& user) { return user.name == of; });
    const std::string where = rule != rules_.users.end() ? rule->where : "";
    if (!found.ok()) {
      users_again_ = clock_.now() + kUsersAgain;
      options_.log.warning(fmt::format("{}: {}: tried again", where, found.error().message));
      continue;
    }
    users_[name] = *found;
    if (!*found && rule != rules_.users.end())
      options_.log.warning(
          fmt::format("{}: this machine has no user '{}': the rule holds for nobody", where, name));
  }
  // The rules may have been replaced meanwhile.
  for (const auto& user : rules_.users)
    if (!users_.contains(user.name) && !users_again_) users_again_ = clock_.now();
  apply_users();
  news_ = true;
}

void WorkloadTracker::await_users(Duration patience) {
  if (asked_users_.valid()) asked_users_.wait_for(patience);
  collect_users();
}

// --- who speaks ----------------------------------------------------------------------------------

void WorkloadTracker::on_message(std::string_view text, const BeatServer::Sender& sender) {
  if (!registry_.admit(sender.uid, clock_.now())) return;
  auto message = parse_beat(text);
  if (!message.ok()) return registry_.count_malformed();
  const std::int64_t pid = message->pid != 0 ? message->pid : sender.pid;
  hear({*std::move(message), sender, pid});
}

void WorkloadTracker::hear(Heard heard) {
  const auto known = known_.find(heard.pid);
  const bool waits = std::any_of(waiting_.begin(), waiting_.end(),
                                 [&](const Heard& one) { return one.pid == heard.pid; });
  const bool is_listed = known != known_.end() && !has_ended(known->second.handle);
  if (is_listed && !waits) return believe(heard, known->second.facts);
  if (waiting_.size() >= kMostWaiting) return registry_.count_too_many();
  waiting_.push_back(std::move(heard));
  ask_senders();
}

void WorkloadTracker::believe(const Heard& heard, const std::optional<ProcessFacts>& process) {
  if (heard.launches)
    registry_.add_launches(*heard.launches, process);
  else
    registry_.add(heard.message, {heard.sender.uid, heard.sender.pid}, process, heard.sender.time);
  news_ = true;
}

void WorkloadTracker::on_launches(LaunchPage page, const LaunchServer::Sender& sender) {
  if (!registry_.admit(sender.uid, clock_.now())) return;
  launches_.take(
      std::move(page),
      {{.pid = sender.pid, .uid = sender.uid}, sender.process, options_.person(sender.uid)});
}

// CUDA names an instance of MIG by its own UUID, and the GPU is that where the process works.
void WorkloadTracker::collect_launches(std::span<const Gpu> gpus) {
  const Instant now = clock_.now();
  LaunchNews news = launches_.step(now);
  std::erase_if(rates_, [&](const ProcessLaunches& old) {
    const bool again = std::any_of(
        news.rates.begin(), news.rates.end(),
        [&](const ProcessLaunches& one) { return one.pid == old.pid && one.gpu == old.gpu; });
    const bool ended = std::any_of(news.ended.begin(), news.ended.end(),
                                   [&](const ProcessId& one) { return is_same_process(one, old); });
    return again || ended || now - old.rate.time > kRateExpires;
  });
  for (const ProcessId& each : news.ended) registry_.forget(each);
  std::move(news.rates.begin(), news.rates.end(), std::back_inserter(rates_));
  for (LaunchProgress& each : news.progress) {
    const bool known = std::any_of(gpus.begin(), gpus.end(), [&](const Gpu& gpu) {
      return gpu.source->capability().id.uuid == each.gpu;
    });
    if (!known && !each.only_gpu) continue;
    if (!known) each.gpu.clear();
    hear({{}, {static_cast<pid_t>(each.pid), each.uid, each.time}, each.pid, std::move(each)});
  }
}

void WorkloadTracker::ask_senders() {
  collect_senders();
  if (senders_.valid() || waiting_.empty()) return;
  asked_for_ = waiting_.size();
  std::map<std::int64_t, KnownSenders::Question> questions;
  for (const Heard& one : waiting_) {
    auto& question = questions[one.pid];
    const bool environment = !one.message.asked.empty() || !one.message.job.empty();
    question = {one.pid, one.sender.uid, question.ancestors || environment};
  }
  std::vector<std::int64_t> sessions;
  for (const auto& [pid, known] : known_) sessions.push_back(known.facts.session);
  senders_ = facts_aside_.post([questions = std::move(questions), sessions = std::move(sessions),
                                speakers = speakers_, now = clock_.now()] {
    Facts out;
    for (const auto& [pid, question] : questions)
      if (auto facts = speakers->look(question, sessions, now)) out.emplace(pid, *std::move(facts));
    return out;
  });
  collect_senders();
}

void WorkloadTracker::collect_senders() {
  if (!is_ready(senders_)) return;
  const Facts facts = senders_.get();
  for (; asked_for_ > 0; --asked_for_) {
    const Heard heard = std::move(waiting_.front());
    waiting_.pop_front();
    const auto of = facts.find(heard.pid);
    const auto known = of != facts.end() ? std::optional(of->second) : std::nullopt;
    believe(heard, known);
  }
}

// --- who works on the GPUs -----------------------------------------------------------------------

void WorkloadTracker::begin_listing(std::span<const Gpu> gpus) {
  const Instant now = clock_.now();
  if (next_listing_ && now < *next_listing_) return;
  next_listing_ = now + list_every_;
  listings_.resize(gpus.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Listing& listing = listings_[i];
    if (listing.opening != gpus[i].opening) listing = Listing{gpus[i].opening};
    if (listing.under_way) continue;  // of a GPU that is slow: its answer is not thrown away
    gpus[i].source->start_processes();
    listing.under_way = true;
  }
}

void WorkloadTracker::collect(std::span<const Gpu> gpus) {
  const Instant now = clock_.now();
  listings_.resize(gpus.size());
  bool listed_anew = false;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Listing& listing = listings_[i];
    if (listing.opening != gpus[i].opening) listing = Listing{gpus[i].opening};
    if (!listing.under_way) continue;
    auto listed = gpus[i].source->poll_processes();
    if (!listed) continue;
    listing.under_way = false;
    listing.answered = true;
    listed_anew = true;
    if (listed->ok()) {
      listing.processes = **std::move(listed);
      listing.listed = now;
    } else if (now - listing.listed > kListExpires) {
      listing.processes.clear();
    }
  }
  if (!listed_anew) return;
  forget_unlisted();
  ask_listed();
  news_ = true;
}

void WorkloadTracker::command(std::int64_t pid) {
  command_ = pid;
  ask_listed();
}

std::vector<std::int64_t> WorkloadTracker::listed_pids() const {
  std::vector<std::int64_t> out;
  for (const Listing& listing : listings_)
    for (const GpuProcess& process : listing.processes)
      if (process.pid > 0) out.push_back(process.pid);
  if (command_ != 0) out.push_back(command_);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void WorkloadTracker::forget_unlisted() {
  const auto listed = listed_pids();
  std::erase_if(known_, [&](const auto& known) {
    return !std::binary_search(listed.begin(), listed.end(), known.first);
  });
}

// Forgets a process that has ended and its reports, even while the driver still lists its PID,
// which another process may get next.
void WorkloadTracker::forget(std::map<std::int64_t, Known>::iterator ended) {
  registry_.forget(ended->second.facts);
  std::erase_if(rates_, [&](const ProcessLaunches& each) {
    return is_same_process(each, ended->second.facts);
  });
  known_.erase(ended);
  news_ = true;
}

void WorkloadTracker::forget_ended() {
  for (auto at = known_.begin(); at != known_.end();) {
    const auto each = at++;
    if (has_ended(each->second.handle)) forget(each);
  }
}

// Reads the kernel's facts of each listed process once. While its handle has not ended, the process
// and the environment of its start are the same. A process without a handle is known by its start.
void WorkloadTracker::ask_listed() {
  collect_listed();
  if (listed_.valid()) return;
  // By PID: the start that is known; empty: the process is new.
  std::map<std::int64_t, std::optional<std::uint64_t>> wanted;
  for (const std::int64_t pid : listed_pids()) {
    const auto known = known_.find(pid);
    if (known == known_.end())
      wanted.emplace(pid, std::nullopt);
    else if (!is_known(known->second.handle) && known->second.facts.started != 0)
      wanted.emplace(pid, known->second.facts.started);
  }
  if (wanted.empty()) return;
  listed_words_ = words_aside_;
  listed_ = facts_aside_.post([wanted = std::move(wanted), readers = options_.readers,
                               words = words_aside_, room = kMostWords - words_.size(),
                               held = known_.size()] {
    std::vector<NewlyListed> out;
    for (const auto& [pid, before] : wanted) {
      if (before && readers.start(pid).value_or(*before) == *before) continue;
      // Opens the handle first: if it has not ended afterwards, the facts are those of its process.
      const bool may_hold = held + out.size() < kMostHeld;
      auto handle =
          std::make_shared<const ProcessHandle>(may_hold ? readers.hold(pid) : ProcessHandle());
      auto facts = readers.facts(pid);
      if (!facts) continue;
      facts->ancestors = readers.ancestors(*facts);
      out.push_back({*std::move(facts), std::move(handle), {}});
      if (out.size() <= room)
        out.back().asked = words->post([pid = pid, asked = readers.asked] { return asked(pid); });
    }
    return out;
  });
  collect_listed();
}

void WorkloadTracker::collect_listed() {
  if (!is_ready(listed_)) return;
  for (NewlyListed& one : listed_.get()) {
    const ProcessId process = one.facts;
    const auto before = known_.find(process.pid);
    if (before != known_.end() && !is_same_process(before->second.facts, process)) forget(before);
    const auto [known, is_new] = known_.try_emplace(process.pid, Known{std::move(one.facts)});
    if (is_new) known->second.handle = std::move(one.handle);
    // Environments that were asked for behind one that hangs are asked for anew.
    if (!is_new || !one.asked.valid() || listed_words_ != words_aside_) continue;
    known->second.environment = Known::Reading::under_way;
    words_.push_back({process, std::move(one.asked), clock_.now()});
  }
  forget_unlisted();
  ask_words();
  news_ = true;
}

// --- what their environments say -----------------------------------------------------------------

void WorkloadTracker::ask_words() {
  for (auto& [pid, known] : known_) {
    if (words_.size() >= kMostWords) break;
    if (known.environment != Known::Reading::wanted) continue;
    known.environment = Known::Reading::under_way;
    words_.push_back({known.facts, words_aside_->post([pid = pid, asked = options_.readers.asked] {
                        return asked(pid);
                      }),
                      clock_.now()});
  }
  collect_words();
}

void WorkloadTracker::collect_words() {
  const Instant now = clock_.now();
  const auto of = [&](const Word& word) -> Known* {
    const auto at = known_.find(word.process.pid);
    const bool is_it = at != known_.end() && is_same_process(at->second.facts, word.process) &&
                       !has_ended(at->second.handle);
    return is_it ? &at->second : nullptr;
  };
  for (; !words_.empty() && is_ready(words_.front().asked); words_.pop_front()) {
    std::string said = words_.front().asked.get();
    if (Known* known = of(words_.front())) {
      known->environment = Known::Reading::over;
      known->own_word = std::move(said);
      settle_word(*known);
    }
    if (words_.size() > 1) words_[1].since = now;  // its turn begins
  }
  const bool stuck = !words_.empty() && now - words_.front().since > kWordPatience;
  if (!stuck || stuck_ >= kMostStuck) return;
  // The process that hangs is given up, the others behind it are asked anew.
  ++stuck_;
  words_aside_ = std::make_shared<BackgroundWorker>(options_.where);
  const auto waiting = std::exchange(words_, {});
  for (const Word& word : waiting)
    if (Known* known = of(word))
      known->environment =
          &word == &waiting.front() ? Known::Reading::over : Known::Reading::wanted;
  ask_words();
}

// That of its environment holds, where it can be read, before what was said of it.
void WorkloadTracker::settle_word(Known& known) {
  const std::string& word = known.own_word.empty() ? known.announced.asked : known.own_word;
  if (word == known.facts.asked) return;
  known.facts.asked = word;
  news_ = true;
  const auto asked = parse_asked_loss(word);
  if (!asked.ok() && std::exchange(known.logged, word) != word)
    options_.log.warning(fmt::format("process {}: {}", known.facts.pid, asked.error().message),
                         {{"pid", known.facts.pid}});
}

// What was said is kept while the process is listed, whoever pushes it out of the registry.
void WorkloadTracker::take_announcements() {
  for (auto& [pid, known] : known_) {
    auto said = registry_.announced(known.facts);
    if (!said.job.empty()) known.announced.job = std::move(said.job);
    if (!said.asked.empty()) known.announced.asked = std::move(said.asked);
    settle_word(known);
  }
}

const LaunchRate* WorkloadTracker::launches_of(const ProcessId& process,
                                               const std::string& gpu) const {
  for (const ProcessLaunches& each : rates_) {
    const bool one_user = each.uid == 0u || each.uid == process.uid;  // root may call setuid()
    if (is_same_process(each, process) && one_user && each.gpu == gpu) return &each.rate;
  }
  return nullptr;
}

SaidJob WorkloadTracker::job_of(std::int64_t pid) const {
  const auto known = known_.find(pid);
  if (known == known_.end()) return {};
  return {known->second.announced.job, known->second.facts.started};
}

// --- what follows --------------------------------------------------------------------------------

const ProcessFacts* WorkloadTracker::command_facts() const {
  const auto known = known_.find(command_);
  return command_ != 0 && known != known_.end() ? &known->second.facts : nullptr;
}

std::vector<GpuProcessTenant> WorkloadTracker::tenants_of(const Listing& listing) const {
  std::vector<GpuProcessTenant> out;
  const ProcessFacts* command = command_facts();
  for (const GpuProcess& process : listing.processes) {
    GpuProcessTenant tenant;
    if (const auto at = known_.find(process.pid); at != known_.end())
      tenant.process = at->second.facts;
    else if (process.pid <= 0 && command != nullptr)
      tenant.process = *command;
    tenant.process.name = plain_name(process.name.empty() ? tenant.process.name : process.name);
    tenant.sm_utilisation = process.sm_utilisation;
    tenant.computes = process.computes;
    out.push_back(std::move(tenant));
  }
  return out;
}

std::vector<GpuTenants> WorkloadTracker::with_command(std::vector<GpuTenants> gpus) const {
  const ProcessFacts* command = command_facts();
  if (command == nullptr) return gpus;
  for (const GpuTenants& gpu : gpus)
    if (command_works_on(gpu.id.uuid)) return gpus;
  for (GpuTenants& gpu : gpus) gpu.tenants.push_back({*command, std::nullopt});
  return gpus;
}

namespace {

// Whether it is the process with that PID, or a descendant of it.
bool is_below(const GpuProcessTenant& tenant, std::int64_t pid) {
  const auto& above = tenant.process.ancestors;
  return tenant.process.pid == pid ||
         std::any_of(above.begin(), above.end(),
                     [&](const Ancestor& each) { return each.pid == pid; });
}

// Helpers of the system work for no user: root's processes that only draw (an X server), and root's
// MPS server if its clients are listed. docs/tenants.md has the rule.
bool is_helper(const GpuProcessTenant& tenant, const GpuTenants& gpu) {
  if (tenant.process.uid != 0u) return false;
  const bool serves = tenant.process.name.starts_with("nvidia-cuda-mps");
  return !tenant.computes || (serves && gpu.lists_mps_clients);
}

// The user for whom it works. A subordinate id (a rootless container's user) counts as its owner.
std::optional<std::uint32_t> user_of(const ProcessFacts& process, const PersonOf& person) {
  const auto uid = process.works_for ? process.works_for : process.uid;
  return uid ? std::optional(person(*uid)) : std::nullopt;
}

}  // namespace

bool WorkloadTracker::works_below(const std::string& gpu, std::int64_t pid) const {
  return std::any_of(tenants_.begin(), tenants_.end(), [&](const GpuTenants& each) {
    const auto below = [&](const GpuProcessTenant& tenant) { return is_below(tenant, pid); };
    return each.id.uuid == gpu && std::any_of(each.tenants.begin(), each.tenants.end(), below);
  });
}

bool WorkloadTracker::others_work_on(const std::string& gpu, const ProcessId& command) const {
  const auto is_others = [&](const GpuProcessTenant& tenant, const GpuTenants& there) {
    const auto user = user_of(tenant.process, options_.person);
    if (!user || is_helper(tenant, there) || is_below(tenant, command.pid)) return false;
    const bool began_after = command.started != 0 && tenant.process.started > command.started;
    return user != command.uid || !began_after;
  };
  return std::any_of(tenants_.begin(), tenants_.end(), [&](const GpuTenants& each) {
    return each.id.uuid == gpu &&
           std::any_of(each.tenants.begin(), each.tenants.end(),
                       [&](const GpuProcessTenant& tenant) { return is_others(tenant, each); });
  });
}

ProcessId WorkloadTracker::begun_by(std::int64_t pid, std::uint32_t uid) const {
  return {pid, uid, options_.readers.start(pid).value_or(0)};
}

bool WorkloadTracker::has_listed() const {
  return !listings_.empty() && !listed_.valid() &&
         std::all_of(listings_.begin(), listings_.end(),
                     [](const Listing& each) { return each.answered; });
}

std::vector<GpuTenants> WorkloadTracker::tenants(std::span<const Gpu> gpus) const {
  std::vector<GpuTenants> out;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    const Capability& gpu = gpus[i].source->capability();
    out.push_back({gpu.id, tenants_of(listings_[i]), gpus[i].policy_delta,
                   gpu.architecture >= Architecture::volta});
  }
  return out;
}

const std::vector<GpuWork>& WorkloadTracker::update(std::span<const Gpu> gpus) {
  collect_users();
  ask_users();
  collect_launches(gpus);
  collect(gpus);
  collect_listed();
  forget_ended();
  ask_words();
  ask_senders();
  // Between listings only a beat is news; who has fallen silent is found at the next one.
  if (!news_ && work_.size() == gpus.size()) return work_;
  take_announcements();
  news_ = false;
  tenants_ = tenants(gpus);
  std::set<std::uint32_t> working;
  for (const GpuTenants& gpu : tenants_)
    for (const GpuProcessTenant& tenant : gpu.tenants)
      if (tenant.process.uid) working.insert(options_.person(*tenant.process.uid));
  launches_.set_working(std::move(working));
  work_ = registry_.status(with_command(tenants_), rules_.rules, clock_.now());
  return work_;
}

std::optional<std::uint32_t> GpuUsers::other_than(std::uint32_t uid) const {
  for (const std::uint32_t each : uids)
    if (each != uid) return each;
  return std::nullopt;
}

namespace {

void add_users(const GpuTenants& gpu, const PersonOf& person, GpuUsers& out) {
  bool computing_helper = false, works = false;
  for (const GpuProcessTenant& tenant : gpu.tenants) {
    if (is_helper(tenant, gpu)) {
      computing_helper = computing_helper || tenant.computes;
      continue;
    }
    works = true;
    if (const auto user = user_of(tenant.process, person))
      out.uids.insert(*user);
    else
      out.unknown = true;
  }
  // An MPS server without a listed client may work for any user.
  if (computing_helper && !works) out.uids.insert(0);
}

}  // namespace

std::vector<std::string> WorkloadTracker::rules_of_nobody() const {
  std::vector<const ProcessFacts*> all;
  for (const GpuTenants& gpu : tenants_)
    for (const GpuProcessTenant& tenant : gpu.tenants) all.push_back(&tenant.process);
  std::vector<std::string> out;
  if (all.empty()) return out;
  for (const JobRule& rule : rules_.rules.rules)
    if (std::none_of(all.begin(), all.end(),
                     [&](const ProcessFacts* process) { return may_match(rule, *process); }))
      out.push_back(rule.name);
  return out;
}

std::set<uid_t> WorkloadTracker::users() const {
  std::set<uid_t> out;
  for (const GpuTenants& gpu : tenants_)
    for (const GpuProcessTenant& tenant : gpu.tenants)
      if (tenant.process.uid) out.insert(*tenant.process.uid);
  return out;
}

GpuUsers WorkloadTracker::users_of(const std::string& gpu) const {
  GpuUsers out;
  for (std::size_t i = 0; i < tenants_.size(); ++i) {
    const GpuTenants& each = tenants_[i];
    if (each.id.uuid != gpu) continue;
    // Nobody knows who has come since a list that is old.
    out.unknown = i >= listings_.size() || clock_.now() - listings_[i].listed > 3 * list_every_;
    add_users(each, options_.person, out);
  }
  return out;
}

}  // namespace derate
