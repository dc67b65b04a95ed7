#include "tune/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string_view>
#include <type_traits>

#include "base/json.h"

namespace derate {
namespace {

enum class Need : std::uint8_t { no, yes };
struct MessageField {
  const char* key;
  Need need = Need::no;
};

// --- what each message has: visit(field, value) --------------------------------------------------

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobSpec> {
  visit_job_spec(m, [&](const JobField& field, auto& value) {
    visit(MessageField{field.key, field.required ? Need::yes : Need::no}, value);
  });
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobShow> {
  visit({"job", Need::yes}, m.job);
  visit({"before"}, m.before);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobRemove> {
  visit({"job", Need::yes}, m.job);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobCreate> {
  visit({"spec", Need::yes}, m.spec);
  visit({"replace"}, m.replace);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobList> {
  visit({"after"}, m.after);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, TrialStart> {
  visit({"job"}, m.job);
  visit({"gpus"}, m.gpus);
  visit({"retry_of"}, m.retry_of);
  visit({"selector"}, m.selector);
  visit({"knob"}, m.knob);
  visit({"model"}, m.model);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, TrialReport> {
  visit({"trial", Need::yes}, m.trial);
  visit({"token", Need::yes}, m.token);
  visit({"epoch"}, m.epoch);
  visit({"steps"}, m.steps);
  visit({"metric"}, m.metric);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, TrialEnd> {
  visit({"trial", Need::yes}, m.trial);
  visit({"token", Need::yes}, m.token);
  visit({"outcome", Need::yes}, m.outcome);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, TrialRenew> {
  visit({"trial", Need::yes}, m.trial);
  visit({"token", Need::yes}, m.token);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, TrialView> {
  visit({"trial", Need::yes}, m.trial);
  visit({"token"}, m.token);
  visit({"job"}, m.job);
  visit({"state", Need::yes}, m.state);
  visit({"stop", Need::yes}, m.stop);
  visit({"verdict"}, m.verdict);
  visit({"why"}, m.why);
  visit({"recurrence"}, m.recurrence);
  visit({"attempt"}, m.attempt);
  visit({"batch_size"}, m.batch_size);
  visit({"exploring"}, m.exploring);
  visit({"epochs"}, m.epochs);
  visit({"metric"}, m.metric);
  visit({"cost_joules"}, m.cost_joules);
  visit({"energy_joules"}, m.energy_joules);
  visit({"time_seconds"}, m.time_seconds);
  visit({"epoch_cost_joules"}, m.epoch_cost_joules);
  visit({"stop_cost_joules"}, m.stop_cost_joules);
  visit({"gpus"}, m.gpus);
  visit({"lease_seconds"}, m.lease_seconds);
  visit({"knob"}, m.knob);
  visit({"may_retry"}, m.may_retry);
  visit({"began_unix_seconds"}, m.began_unix_seconds);
  visit({"ended_unix_seconds"}, m.ended_unix_seconds);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobView> {
  visit({"spec", Need::yes}, m.spec);
  visit({"uid"}, m.uid);
  visit({"trials"}, m.trials);
  visit({"recurrences"}, m.recurrences);
  visit({"reached"}, m.reached);
  visit({"cheapest_joules"}, m.cheapest_joules);
  visit({"cheapest_batch_size"}, m.cheapest_batch_size);
  visit({"running"}, m.running);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobAnswer> {
  visit({"message"}, m.message);
  visit({"job"}, m.job);
  visit({"history"}, m.history);
  visit({"more_before"}, m.more_before);
}

template <class M, class V>
void visit_fields(M& m, V&& visit) requires std::is_same_v<std::remove_const_t<M>, JobsAnswer> {
  visit({"jobs", Need::yes}, m.jobs);
  visit({"more_after"}, m.more_after);
}

// --- writing -------------------------------------------------------------------------------------

template <class M>
Json object_of(const M& message);

Json json_of(const std::string& value) { return value; }
Json json_of(bool value) { return value; }
Json json_of(int value) { return value; }
Json json_of(std::int64_t value) { return value; }
Json json_of(double value) { return value; }
Json json_of(const std::vector<int>& value) { return value; }
template <class M>
Json json_of(const M& value) requires std::is_class_v<M> {
  return object_of(value);
}
template <class M>
Json json_of(const std::vector<M>& value) {
  Json out = Json::array();
  for (const M& each : value) out.push_back(json_of(each));
  return out;
}

template <class T>
bool is_ready(const T&) {
  return true;
}
bool is_ready(const std::string& value) { return !value.empty(); }
template <class T>
bool is_ready(const std::optional<T>& value) {
  return value.has_value();
}
template <class T>
const T& held(const T& value) {
  return value;
}
template <class T>
const T& held(const std::optional<T>& value) {
  return *value;
}

// The texts that are read as something else than empty where they are absent.
template <class M>
std::set<std::string_view> texts_with_default() {
  std::set<std::string_view> out;
  const M absent{};
  visit_fields(absent, [&](const MessageField& field, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::string&>)
      if (!value.empty()) out.insert(field.key);
  });
  return out;
}

// What is empty is absent.
template <class M>
Json object_of(const M& message) {
  static const auto kWritten = texts_with_default<M>();
  Json out = Json::object();
  visit_fields(message, [&](const MessageField& field, const auto& value) {
    if (field.need == Need::yes || is_ready(value) || kWritten.contains(field.key))
      out[field.key] = json_of(held(value));
  });
  return out;
}

// --- reading -------------------------------------------------------------------------------------

enum class Unknown : std::uint8_t { refused, left_out };

template <class M>
Result<M> message_of(const Json& json, Unknown unknown);

Error wanted(const char* key, const Json& value, const char* what) {
  constexpr std::size_t kShown = 40;
  std::string shown = json_text(value);
  if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
  return {Errc::invalid_argument, fmt::format("{} {}: wanted {}", key, shown, what)};
}

Result<void> read(const char* key, const Json& json, std::string& out, Unknown) {
  if (!json.is_string()) return wanted(key, json, "a text");
  out = json.get<std::string>();
  return {};
}
Result<void> read(const char* key, const Json& json, bool& out, Unknown) {
  if (!json.is_boolean()) return wanted(key, json, "true or false");
  out = json.get<bool>();
  return {};
}
Result<void> read(const char* key, const Json& json, std::int64_t& out, Unknown) {
  const bool large = json.is_number_unsigned() &&
                     json.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max();
  if (!json.is_number_integer() || large) return wanted(key, json, "an integer");
  out = json.get<std::int64_t>();
  return {};
}
Result<void> read(const char* key, const Json& json, int& out, Unknown unknown) {
  std::int64_t value = 0;
  TRY(read(key, json, value, unknown));
  if (value != static_cast<int>(value)) return wanted(key, json, "an integer of 32 bits");
  out = static_cast<int>(value);
  return {};
}
Result<void> read(const char* key, const Json& json, double& out, Unknown) {
  if (!json.is_number()) return wanted(key, json, "a number");
  out = json.get<double>();
  return {};
}
template <class M>
Result<void> read(const char* key, const Json& json, M& out,
                  Unknown unknown) requires std::is_class_v<M> {
  out = TRY(message_of<M>(json, unknown).with(key));
  return {};
}
template <class T>
Result<void> read(const char* key, const Json& json, std::optional<T>& out, Unknown unknown) {
  return read(key, json, out.emplace(), unknown);
}
template <class T>
Result<void> read(const char* key, const Json& json, std::vector<T>& out, Unknown unknown) {
  if (!json.is_array()) return wanted(key, json, "a list");
  out.clear();
  for (const Json& each : json) TRY(read(key, each, out.emplace_back(), unknown));
  return {};
}

template <class M>
Result<M> message_of(const Json& json, Unknown unknown) {
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  M out;
  Result<void> good;
  std::vector<std::string> known;
  visit_fields(out, [&](const MessageField& field, auto& value) {
    known.push_back(field.key);
    if (!good.ok()) return;
    const auto at = json.find(field.key);
    if (at != json.end())
      good = read(field.key, *at, value, unknown);
    else if (field.need == Need::yes)
      good = Error{Errc::invalid_argument, fmt::format("{}: is missing", field.key)};
  });
  TRY(std::move(good));
  if (unknown == Unknown::left_out) return out;
  for (const auto& [key, value] : json.items())
    if (key != "command" && std::find(known.begin(), known.end(), key) == known.end())
      return Error{Errc::invalid_argument,
                   fmt::format("unknown field '{}'; there are {}", key,
                               known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")))};
  return out;
}

// --- the commands --------------------------------------------------------------------------------

template <class M>
constexpr const char* kCommand = nullptr;
template <>
constexpr const char* kCommand<JobCreate> = "tune-job-create";
template <>
constexpr const char* kCommand<JobShow> = "tune-job-show";
template <>
constexpr const char* kCommand<JobList> = "tune-job-list";
template <>
constexpr const char* kCommand<JobRemove> = "tune-job-remove";
template <>
constexpr const char* kCommand<TrialStart> = "tune-trial-begin";
template <>
constexpr const char* kCommand<TrialReport> = "tune-trial-report";
template <>
constexpr const char* kCommand<TrialEnd> = "tune-trial-end";
template <>
constexpr const char* kCommand<TrialRenew> = "tune-trial-renew";

// Calls visit(an empty message) for each kind of request.
template <class V, class... M>
void visit_kinds(const std::variant<M...>*, V&& visit) {
  (visit(M{}), ...);
}

template <class M>
Result<M> answer_of(const Json& json) {
  auto out = message_of<M>(json, Unknown::left_out);
  if (out.ok()) return out;
  return Error{Errc::bad_data, "the daemon's answer: " + out.error().message};
}

}  // namespace

Json job_json(const JobSpec& job) { return object_of(job); }
Result<JobSpec> job_of(const Json& json) { return message_of<JobSpec>(json, Unknown::refused); }

std::vector<TuneCommand> tune_commands() {
  std::vector<TuneCommand> out;
  visit_kinds(static_cast<const TuneRequest*>(nullptr), [&]<class M>(const M& none) {
    TuneCommand& command = out.emplace_back();
    command.name = kCommand<M>;
    visit_fields(
        none, [&](const MessageField& field, const auto&) { command.fields.push_back(field.key); });
  });
  return out;
}

Result<TuneRequest> tune_request_of(const Json& json) {
  if (!json.is_object()) return Error{Errc::invalid_argument, "wanted a JSON object"};
  const auto at = json.find("command");
  const std::string command = at != json.end() && at->is_string() ? at->get<std::string>() : "";
  std::string known;
  for (const TuneCommand& each : tune_commands())
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  Result<TuneRequest> out =
      Error{Errc::invalid_argument, fmt::format("command '{}': allowed are {}", command, known)};
  visit_kinds(static_cast<const TuneRequest*>(nullptr), [&]<class M>(const M&) {
    if (command != kCommand<M>) return;
    auto message = message_of<M>(json, Unknown::refused);
    if (message.ok())
      out = TuneRequest(*std::move(message));
    else
      out = std::move(message).error().with(command);
  });
  return out;
}

Result<TuneRequest> parse_tune_request(std::string_view text) {
  return tune_request_of(parse_json(text));
}

std::string format_tune_request(const TuneRequest& request) {
  return std::visit(
      []<class M>(const M& message) {
        Json out = {{"command", kCommand<M>}};
        out.update(object_of(message));
        return json_text(out);
      },
      request);
}

Json answer_json(const TrialView& answer) { return object_of(answer); }
Json answer_json(const JobAnswer& answer) { return object_of(answer); }
Json answer_json(const JobsAnswer& answer) { return object_of(answer); }
Result<TrialView> trial_view_of(const Json& json) { return answer_of<TrialView>(json); }
Result<JobAnswer> job_answer_of(const Json& json) { return answer_of<JobAnswer>(json); }
Result<JobsAnswer> jobs_answer_of(const Json& json) { return answer_of<JobsAnswer>(json); }

}  // namespace derate
