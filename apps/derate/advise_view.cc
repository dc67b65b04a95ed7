#include "advise_view.h"

#include <fmt/format.h>

#include "base/json.h"
#include "service/transport/daemon_call.h"
#include "simulated.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

constexpr std::size_t kIndent = 12, kLeastWidth = 40;

// A name and its text, which goes on below itself.
std::string named_lines(const char* name, const std::string& text, std::size_t width) {
  const std::size_t room = std::max(kLeastWidth, width) - kIndent;
  std::string out;
  for (const std::string& line : wrap_text(text, room, 20, {.utf8 = shows_utf8()}))
    out += fmt::format(
        "{}{}\n",
        out.empty() ? toned(fmt::format("   {:<9}", name), Paint::dim) : std::string(kIndent, ' '),
        line);
  return out;
}

// Without a daemon a policy is that of a run.
std::string as_here(std::string text) {
  constexpr std::string_view kSet = "derate policy set assure";
  const auto at = text.find(kSet);
  if (at != text.npos && !find_daemon().ok())
    text.replace(at, kSet.size(), "sudo derate run -- COMMAND");
  return text;
}

std::string advice_lines(const Advice& advice, std::size_t number, std::size_t width,
                         const std::string& policy = {}) {
  const FindingInfo& info = info_of(advice.finding);
  const Paint paint = advice.certainty == Certainty::sure ? Paint::good : Paint::warning;
  std::string out = fmt::format("{}. {}  {}\n", number, toned(info.title, Paint::strong),
                                toned(to_string(advice.certainty), paint));
  out += named_lines("because", advice.evidence, width);
  out += named_lines("to win", advice.effect, width);
  const char* name = "try";
  for (const std::string& each : tries_under(policy, advice.finding)) {
    out += named_lines(name, as_here(each), width);
    name = "";
  }
  return out + named_lines("more", info.page, 200);
}

// What is well used, so that nobody looks for more.
std::string well_used(const WorkEvidence& e) {
  std::string out =
      fmt::format("kernels ran {:.0f} % of {}", as_percent(e.working), duration_text(e.length));
  const auto add = [&](const char* name, const std::optional<Fraction>& share) {
    if (share && share->value() >= 0.1)
      out += fmt::format(", {} {:.0f} %", name, as_percent(*share));
  };
  add("SMs", e.sm);
  add("tensor", e.tensor);
  add("FP64", e.fp64);
  add("FP32", e.fp32);
  add("DRAM", e.dram);
  if (!e.sees_inside) add("memory", e.memory_utilisation);
  return out;
}

std::string gpu_text(const AdvisedGpu& each, std::size_t width) {
  std::string out =
      toned(fmt::format("GPU {}", gpu_cell(each.gpu.index, each.gpu.uuid)), Paint::accent) + "  " +
      each.gpu.name + (each.policy.empty() ? "" : ", governed by " + each.policy) + "\n";
  if (!each.evidence) return out + "Too few readings to say anything: watch it for longer.\n";
  if (each.advice.empty())
    return out + fmt::format("Nothing to advise: {}.\n", well_used(*each.evidence));
  for (std::size_t i = 0; i < each.advice.size(); ++i)
    out += advice_lines(each.advice[i], i + 1, width, each.policy);
  if (!each.evidence->sees_inside)
    out += named_lines("note",
                       "no activity counters were read (Hopper and later have them): "
                       "causes that only they tell apart are named together",
                       width);
  return out;
}

Json one_advice_json(const Advice& advice, const std::string& policy = {}) {
  const FindingInfo& info = info_of(advice.finding);
  return {{"finding", info.name},
          {"title", info.title},
          {"certainty", to_string(advice.certainty)},
          {"lost_ratio", advice.lost.value()},
          {"evidence", advice.evidence},
          {"effect", advice.effect},
          {"tries", tries_under(policy, advice.finding)},
          {"page", info.page}};
}

Json evidence_json(const WorkEvidence& e) {
  Json out = {{"seconds", seconds(e.length)},
              {"activity_counters", e.sees_inside},
              {"working_ratio", e.working.value()}};
  const auto add = [&](const char* name, const auto& known) {
    if (known) out[name] = known->value();
  };
  add("sm_ratio", e.sm);
  add("occupancy_ratio", e.occupancy);
  add("tensor_ratio", e.tensor);
  add("fp64_ratio", e.fp64);
  add("fp32_ratio", e.fp32);
  add("fp16_ratio", e.fp16);
  add("integer_ratio", e.integer);
  add("dram_ratio", e.dram);
  add("memory_utilisation_ratio", e.memory_utilisation);
  add("pcie_in_bytes_per_second", e.pcie.in);
  add("pcie_out_bytes_per_second", e.pcie.out);
  add("power_watts", e.power);
  out["heat_ratio"] = e.heat.time.value();
  out["power_cap_ratio"] = e.power_cap.time.value();
  out["stops"] = e.stops.size();
  return out;
}

}  // namespace

std::string advice_text(const std::vector<AdvisedGpu>& gpus, const std::optional<Advice>& of_all,
                        std::size_t width) {
  std::string out;
  if (of_all)
    out += toned("All of them", Paint::accent) + "\n" + advice_lines(*of_all, 1, width) + "\n";
  for (std::size_t i = 0; i < gpus.size(); ++i)
    out += (i > 0 ? "\n" : "") + gpu_text(gpus[i], width);
  return out;
}

Json advice_json(const std::vector<AdvisedGpu>& gpus, const std::optional<Advice>& of_all) {
  Json out = {{"gpus", Json::array()}};
  if (of_all) out["of_all"] = one_advice_json(*of_all);
  for (const AdvisedGpu& each : gpus) {
    Json one = {{"index", each.gpu.index}, {"uuid", each.gpu.uuid}, {"name", each.gpu.name}};
    if (!each.policy.empty()) one["policy"] = each.policy;
    if (each.evidence) one["evidence"] = evidence_json(*each.evidence);
    one["advice"] = Json::array();
    for (const Advice& advice : each.advice)
      one["advice"].push_back(one_advice_json(advice, each.policy));
    out["gpus"].push_back(std::move(one));
  }
  mark_simulated(out["gpus"]);
  return out;
}

std::string findings_text(std::size_t width) {
  Table table({"<finding", "<what it says", "<by which sensors"});
  for (const FindingInfo& each : finding_catalogue())
    table.add({each.name, each.title, each.needs});
  return table.text(width, {2});
}

Json findings_json() {
  Json out = Json::array();
  for (const FindingInfo& each : finding_catalogue())
    out.push_back({{"finding", each.name},
                   {"title", each.title},
                   {"sensors", each.needs},
                   {"page", each.page}});
  return {{"findings", std::move(out)}};
}

}  // namespace derate::cli
