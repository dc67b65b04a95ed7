#include "status_view.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/exit_code.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "base/when.h"
#include "core/gpu_id.h"
#include "govern/fleet/restore_left.h"
#include "integ/user_rule.h"
#include "service/records/card_json.h"
#include "service/records/state_file.h"
#include "service/transport/daemon_call.h"
#include "simulated.h"
#include "terminal/output.h"
#include "terminal/text_width.h"
#include "top_card.h"

namespace derate::cli {
namespace {

Json ungoverned_state(TelemetrySource& source) {
  const Capability& capability = source.capability();
  Json json = {
      {"index", capability.id.index}, {"uuid", capability.id.uuid}, {"name", capability.id.name}};
  if (!capability.sm_clocks.empty())
    json["highest_sm_clock_mhz"] = capability.sm_clocks.back().value();
  if (capability.power_limits)
    json["factory_power_limit_watts"] = capability.power_limits->factory.value();
  const auto sample = source.read({.energy = false, .activity = false});
  if (!sample.ok()) {
    json["error"] = sample.error().message;
    json["reason"] = sample.error().message;
    return json;
  }
  const auto put = [&](const char* key, const auto& quantity) {
    if (quantity) json[key] = quantity->value();
  };
  put("sm_clock_mhz", sample->sm_clock);
  put("gpu_utilisation_ratio", sample->gpu_utilisation);
  put("memory_utilisation_ratio", sample->memory_utilisation);
  put("power_watts", sample->power_instant ? sample->power_instant : sample->power_usage);
  put("temperature_celsius", sample->temperature);
  put_modes(json, *sample);
  if (sample->card)
    if (Json card = card_json(*sample->card, {}, sample->time); !card.is_null())
      json["card"] = std::move(card);
  json["reason"] = driver_reason(*sample);
  return json;
}

std::string cell(const Json& gpu, const char* key, double scale, const char* unit,
                 int decimals = 0) {
  const auto value = number_at(gpu, key);
  return value ? fixed_text(*value * scale, decimals) + unit : "-";
}

int index_of(const Json& gpu) {
  const auto at = gpu.find("index");
  return at != gpu.end() && at->is_number_integer() ? at->get<int>() : -1;
}

// "16:04", with its day where that is another one.
std::string moment_text(WallTime time) {
  const std::string whole = second_text(time);
  const bool today = day_text(time) == day_text(SystemClock().wall_now());
  constexpr std::size_t kDay = 11;  // "2026-11-01 "
  return today ? whole.substr(kDay) : whole;
}

// By a command without a policy: "released by root at 18:44:10".
std::string released_text(const Json& gpu) {
  const auto by = gpu.find("assigned");
  if (by == gpu.end() || !by->is_object() || text_at(*by, "by") != "command") return "nobody";
  const auto since = number_at(*by, "since_unix_seconds");
  return "released by " + who_text(text_at(*by, "who")) +
         (since ? " at " + moment_text(WallTime(from_seconds(*since))) : "");
}

std::string governed_by(const Json& gpu) {
  const std::string policy = text_at(gpu, "policy");
  if (policy.empty()) return released_text(gpu);
  const std::string how = assignment_text(gpu);
  return policy + (how.empty() ? "" : " (" + how + ")");
}

// "90 % kept"; "95 % each, below for 12 s", where it holds in each phase. A dash: nothing is
// promised.
std::string promise(const Json& gpu) {
  if (!text_at(gpu, "error").empty()) return "-";
  std::string out = cell(gpu, "promised_performance_ratio", 100, " %");
  if (out == "-") return out;
  if (true_at(gpu, "every_phase")) out += " each";
  const std::string state = promise_text(gpu);
  return state.empty() ? out : out + " " + state;
}

// "12 %" of what would have been used at the highest clock; of a dry run, what it would save.
std::string saved(const Json& gpu) {
  if (!text_at(gpu, "error").empty()) return "-";
  const auto at = gpu.find(true_at(gpu, "dry_run") ? "saving" : "saved");
  return at != gpu.end() && at->is_object() ? cell(*at, "energy_saving_ratio", 100, " %") : "-";
}

// Whether DCGM's host engine gave the activity of the last seconds.
bool has_dcgm(const Json& gpu) {
  const auto sources = gpu.find("sources");
  if (sources == gpu.end() || !sources->is_array()) return false;
  return std::any_of(sources->begin(), sources->end(), [](const Json& each) {
    const auto age = number_at(each, "age_seconds");
    return text_at(each, "field") == "activity" && text_at(each, "source") == "dcgm" && age &&
           *age < 5;
  });
}

// By what it is known how far the work is: how long ago it said so itself, or how exactly what it
// launches counts it.
std::string progress(const Json& gpu) {
  if (!text_at(gpu, "error").empty()) return "-";
  const std::string launches = cell(gpu, "launch_unsteadiness_ratio", 100, " %", 1);
  if (launches != "-") return "launches ±" + launches;
  const std::string age = cell(gpu, "beat_age_seconds", 1, " s ago");
  if (age != "-") return "beat " + age;
  const std::string signal = text_at(gpu, "progress_signal");
  if (signal == "counters" && has_dcgm(gpu)) return "counters, DCGM";
  return signal.empty() ? "-" : signal;
}

// A daemon tells of every GPU; of a command's governor only those that it governs are known.
bool covers_all_gpus(const Json& state) { return text_at(state, "owner") == "derated"; }

ClosedGpus closed_by(const Json& state) {
  if (!covers_all_gpus(state)) return ClosedGpus::no;
  if (true_at(state, "paused")) return ClosedGpus::paused;
  return true_at(state, "asleep") ? ClosedGpus::asleep : ClosedGpus::no;
}

}  // namespace

std::string who_text(const std::string& who) {
  constexpr std::string_view kUid = "uid ";
  if (!who.starts_with(kUid)) return who;
  const auto uid = parse_uid(std::string_view(who).substr(kUid.size()));
  return uid ? name_of_user(*uid).value_or(who) : who;
}

std::string silence_text(const Json& gpu) {
  const std::string error = text_at(gpu, "error");
  if (error.empty()) return "";
  const auto silent = number_at(gpu, "silent_seconds");
  const std::string since =
      silent ? " since " + moment_text(SystemClock().wall_now() - from_seconds(*silent)) : "";
  const bool is_lost = error.find("lost") != std::string::npos;
  return fmt::format("{}{}: {}", is_lost ? "LOST" : "no answer", since, error);
}

// As the page says it (web/ui/src/words.ts).
std::string plain_trouble(const std::string& message) {
  const auto colon = message.find(": "), code = message.rfind(" (NVML error ");
  if (!message.starts_with("nvml") || colon == message.npos || code == message.npos || code < colon)
    return message;
  const std::string call = message.substr(0, colon);
  const auto has = [&](const char* part) { return call.find(part) != call.npos; };
  const char* what = has("Reset") && has("Clock")     ? "clock cannot be given back"
                     : has("Set") && has("Clock")     ? "clock cannot be set"
                     : has("SetPowerManagementLimit") ? "power limit cannot be set"
                                                      : "cannot be read";
  std::string why = message.substr(colon + 2, code - colon - 2);
  if (to_lower(why) == "insufficient permissions") why = "no permission";
  if (to_lower(why) == "not supported") why = "not supported";
  return fmt::format("{}: {} ({}, {}", what, why, call, message.substr(code + 2));
}

std::string closed_text(ClosedGpus closed) {
  switch (closed) {
    case ClosedGpus::no:
      break;
    case ClosedGpus::paused:
      return "derated is paused: it has closed every GPU; `derate resume` goes on";
    case ClosedGpus::asleep:
      return "asleep: nobody uses a GPU, and derated has closed them so that they power down. It "
             "opens them when a program uses one; no history of the time between is kept";
  }
  return "";
}

std::string assignment_text(const Json& gpu) {
  std::string how;
  const auto add = [&](const std::string& text) { how += (how.empty() ? "" : ", ") + text; };
  if (true_at(gpu, "dry_run")) add("dry run");
  if (const auto by = gpu.find("assigned"); by != gpu.end() && by->is_object()) {
    const std::string who = text_at(*by, "who");
    add(text_at(*by, "by") + (who.empty() ? "" : " of " + who_text(who)));
    if (const auto end = cell(*by, "ends_in_seconds", 1, " s"); end != "-") add("for " + end);
  }
  return how;
}

// Trouble before the reason: it is what the reader has to know. So are other tools that change what
// was set, though it is set again.
std::string why_text(const Json& gpu) {
  if (std::string silence = silence_text(gpu); !silence.empty()) return silence;
  std::string out = plain_trouble(text_at(gpu, "trouble"));
  if (out.empty()) out = text_at(gpu, "reason");
  const auto bounds = gpu.find("bounds");
  if (bounds != gpu.end() && bounds->is_array() && !bounds->empty() && bounds->front().is_object())
    out += fmt::format("; {} allows {} at most", text_at(bounds->front(), "by"),
                       cell(bounds->front(), "highest_clock_mhz", 1, " MHz"));
  if (true_at(gpu, "other_settings_changed")) out += "; " + text_at(gpu, "other_settings");
  const auto drifts = gpu.find("drifts");
  if (drifts == gpu.end() || !drifts->is_number_integer()) return out;
  return fmt::format("{} (another tool changed it {}×)", out, drifts->get<int>());
}

std::string promise_text(const Json& gpu) {
  const std::string state = text_at(gpu, "promise");
  const std::string below = cell(gpu, "promise_below_seconds", 1, " s");
  if (state == "broken") return "BROKEN for " + below;
  return state + (state == "below" ? " for " + below : "");
}

int end_of_look(Clock& clock) {
  const auto silent = silent_governors(clock);
  for (const std::string& who : silent) warn("derate: {}\n", who);
  return silent.empty() ? exit_code::kOk : exit_code_of(Errc::gpu_stuck);
}

StatusView::StatusView(Clock& clock)
    : clock_(clock), services_(std::make_shared<const Json>(Json::array())) {}

Result<Json> StatusView::look(const std::string& choice) {
  Json gpus = Json::array(), services = Json::array();
  notes_.clear();
  bool all = false;
  closed_ = ClosedGpus::no;
  for (const Json& state : read_states(clock_)) {
    all = all || covers_all_gpus(state);
    closed_ = std::max(closed_, closed_by(state));
    if (const auto rules = state.find("rules_of_nobody"); rules != state.end() && rules->is_array())
      for (const Json& rule : *rules)
        if (rule.is_string())
          notes_.push_back(
              fmt::format("[[job]] {}: no process on a GPU matches it", rule.get<std::string>()));
    if (const auto served = state.find("services"); served != state.end() && served->is_array())
      services.insert(services.end(), served->begin(), served->end());
    for (const Json& gpu : state["gpus"]) {
      if (!gpu.is_object()) continue;
      const auto known = std::find_if(gpus.begin(), gpus.end(), [&](const Json& other) {
        return text_at(other, "uuid") == text_at(gpu, "uuid");
      });
      // Who governs it knows more than who only observes it.
      if (known == gpus.end())
        gpus.push_back(gpu);
      else if (text_at(*known, "policy").empty())
        *known = gpu;
    }
  }
  services_ = std::make_shared<const Json>(std::move(services));
  if (!all && !real_) real_ = open_gpus({}, clock_);
  if (!all && !real_->ok() && gpus.empty()) return real_->error();
  if (!all && real_->ok())
    for (OpenGpu& gpu : (*real_)->gpus) {
      const bool known = std::any_of(gpus.begin(), gpus.end(), [&](const Json& other) {
        return text_at(other, "uuid") == gpu.source->capability().id.uuid;
      });
      if (!known) gpus.push_back(ungoverned_state(*gpu.source));
    }
  const auto left = left_by_nobody();
  for (Json& gpu : gpus)
    if (const auto by = left.find(text_at(gpu, "uuid")); by != left.end())
      gpu["trouble"] = fmt::format("{}: `{}` gives it back", by->second.why, by->second.remedy);
  std::vector<GpuId> ids;
  for (const Json& gpu : gpus)
    ids.push_back({index_of(gpu), text_at(gpu, "uuid"), "", text_at(gpu, "name")});
  Json chosen = Json::array();
  if (ids.empty() && closed_ != ClosedGpus::no) return chosen;
  for (const int at : TRY(select_gpus(ids, choice)))
    chosen.push_back(gpus[static_cast<std::size_t>(at)]);
  return chosen;
}

namespace {

std::string memory_of(const Json& gpu) {
  const std::string out = memory_cell(card_at(gpu));
  return out.empty() ? "-" : out;
}
bool knows_memory(const Json& gpus) {
  return std::any_of(gpus.begin(), gpus.end(),
                     [](const Json& gpu) { return memory_of(gpu) != "-"; });
}

constexpr std::ptrdiff_t kMemoryFigure = 3;

// The figures of a GPU, and their headings. `memory`: used memory is one of them.
std::vector<std::string> figure_headings(bool memory) {
  std::vector<std::string> out{"GPU",   "SM clock", "GPU util", "mem bw",
                               "power", "temp",     "promise",  "saved"};
  if (memory) out.insert(out.begin() + kMemoryFigure, "memory");
  return out;
}
std::vector<std::string> figures(const Json& gpu, bool memory) {
  std::vector<std::string> out{gpu_cell(index_of(gpu), text_at(gpu, "uuid")),
                               cell(gpu, "sm_clock_mhz", 1, " MHz"),
                               cell(gpu, "gpu_utilisation_ratio", 100, " %"),
                               cell(gpu, "memory_utilisation_ratio", 100, " %"),
                               cell(gpu, "power_watts", 1, " W"),
                               cell(gpu, "temperature_celsius", 1, " °C"),
                               promise(gpu),
                               saved(gpu)};
  if (memory) out.insert(out.begin() + kMemoryFigure, memory_of(gpu));
  return out;
}

bool needs_somebody(const Json& gpu) {
  return !text_at(gpu, "attention").empty() || !text_at(gpu, "trouble").empty() ||
         !text_at(gpu, "error").empty();
}

// Two lines a GPU: its figures, and below them the reason, cut to the width.
std::string narrow_text(const Json& gpus, std::size_t width) {
  const bool memory = knows_memory(gpus);
  std::vector<std::string> headings = figure_headings(memory);
  headings.emplace_back("<governed by");
  Table table(std::move(headings));
  for (const Json& gpu : gpus) {
    std::vector<std::string> cells = figures(gpu, memory);
    cells.push_back(governed_by(gpu));
    table.add(std::move(cells));
  }
  // The least telling columns go first: bandwidth, temperature, utilisation.
  const std::string text = memory ? table.text(width, {4, 6, 2, kMemoryFigure, 8, 7})
                                  : table.text(width, {3, 5, 2, 7, 6});
  std::string out;
  std::size_t row = 0;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    out += std::string(line) + "\n";
    if (row > 0 && row <= gpus.size()) {
      const Json& gpu = gpus[row - 1];
      constexpr std::size_t kIndent = 4;
      out += std::string(kIndent, ' ') +
             toned(cut_text(why_text(gpu), std::max(width, 2 * kIndent) - kIndent),
                   needs_somebody(gpu) ? Paint::bad : Paint::dim) +
             "\n";
    }
    ++row;
  }
  return out;
}

}  // namespace

std::string nothing_governed(const Json& gpus) {
  const bool any = std::any_of(gpus.begin(), gpus.end(),
                               [](const Json& gpu) { return !text_at(gpu, "policy").empty(); });
  if (any || gpus.empty()) return "";
  return fmt::format("\nNo GPU is governed: nothing is saved. {}\n", way_to_save());
}

std::string way_to_save() {
  return find_daemon().ok() ? "`sudo derate policy set assure` has derated govern them."
                            : "`sudo derate run -- COMMAND` governs while a command runs.";
}

std::string status_text(const Json& gpus, ClosedGpus closed, std::optional<std::size_t> width) {
  if (closed != ClosedGpus::no && gpus.empty()) return closed_text(closed) + "\n";
  const bool memory = knows_memory(gpus);
  std::vector<std::string> headings = figure_headings(memory);
  headings.insert(headings.begin() + 1, "<name");
  for (const char* more : {"<progress", "<governed by", "<why this clock"})
    headings.emplace_back(more);
  Table table(std::move(headings));
  for (const Json& gpu : gpus) {
    std::vector<std::string> cells = figures(gpu, memory);
    cells.insert(cells.begin() + 1, text_at(gpu, "name"));
    cells.push_back(progress(gpu));
    cells.push_back(governed_by(gpu));
    cells.push_back(why_text(gpu));
    table.add(std::move(cells), needs_somebody(gpu) ? Paint::bad : Paint::plain);
  }
  const bool is_wide = width && table.width() > *width;
  return is_wide ? narrow_text(gpus, *width) : table.text();
}

}  // namespace derate::cli
