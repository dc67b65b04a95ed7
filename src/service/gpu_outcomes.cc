#include "service/gpu_outcomes.h"

#include <optional>

#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"

namespace derate {
namespace {

void append(Json& answer, const char* key, const char* between, const std::string& text) {
  std::string all = answer.value(key, "");
  answer[key] = all.empty() ? text : all + between + text;
}

Json outcome_json(const GpuOutcome& outcome) {
  Json out = {{"index", outcome.id.index}, {"uuid", outcome.id.uuid}, {"ok", outcome.done.ok()}};
  if (outcome.done.ok()) {
    out["message"] = *outcome.done;
  } else {
    out["error"] = outcome.done.error().message;
    out["exit_code"] = exit_code_of(outcome.done.error().code);
    out["code"] = word_of(outcome.done.error().code);
  }
  return out;
}

}  // namespace

Json outcomes_json(std::span<const GpuOutcome> outcomes) {
  Json out = {{"ok", true}}, gpus = Json::array();
  std::optional<Errc> failure;
  for (const GpuOutcome& outcome : outcomes) {
    gpus.push_back(outcome_json(outcome));
    if (outcome.done.ok()) {
      append(out, "message", ", ", *outcome.done);
      continue;
    }
    append(out, "error", "; ", outcome.done.error().message);
    if (!failure) failure = outcome.done.error().code;
  }
  if (failure) {
    out["ok"] = false;
    out["exit_code"] = out.contains("message") ? exit_code::kPartial : exit_code_of(*failure);
    out["code"] = word_of(*failure);
  }
  out["gpus"] = std::move(gpus);
  return out;
}

}  // namespace derate
