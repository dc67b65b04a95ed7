#include "service/records/gpu_outcomes.h"

#include "api/requests.h"
#include "base/errc_word.h"
#include "base/exit_code.h"
#include "base/json.h"

namespace derate {
namespace {

void append(std::string& all, const char* between, const std::string& text) {
  all += (all.empty() ? "" : between) + text;
}

GpuOutcomeView view(const GpuOutcome& outcome) {
  GpuOutcomeView out{.index = outcome.id.index, .uuid = outcome.id.uuid, .ok = outcome.done.ok()};
  if (outcome.done.ok()) {
    out.message = *outcome.done;
  } else {
    out.error = outcome.done.error().message;
    out.exit_code = exit_code_of(outcome.done.error().code);
    out.code = word_of(outcome.done.error().code);
  }
  return out;
}

}  // namespace

Json outcomes_json(std::span<const GpuOutcome> outcomes) {
  OutcomesAnswer out;
  for (const GpuOutcome& outcome : outcomes) {
    const GpuOutcomeView& gpu = out.gpus.emplace_back(view(outcome));
    if (gpu.ok) {
      append(out.message, ", ", gpu.message);
      continue;
    }
    append(out.error, "; ", gpu.error);
    if (out.ok) out.code = gpu.code, out.exit_code = gpu.exit_code;
    out.ok = false;
  }
  if (!out.ok && !out.message.empty()) out.exit_code = exit_code::kPartial;
  return answer_json(out);
}

}  // namespace derate
