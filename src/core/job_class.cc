#include "core/job_class.h"

namespace derate {
namespace {

constexpr JobClass kClasses[] = {
    {"training", 0.10, false, "long jobs that somebody waits for"},
    {"inference", 0.05, true, "answers that somebody waits for: no phase may lose more"},
    {"batch", 0.30, false, "work that is done by tomorrow"},
};

}  // namespace

std::span<const JobClass> job_classes() { return kClasses; }

const JobClass* find_job_class(std::string_view name) {
  for (const JobClass& one : kClasses)
    if (name == one.name) return &one;
  return nullptr;
}

std::string job_class_names() {
  std::string out;
  for (const JobClass& one : kClasses) out += (out.empty() ? "" : ", ") + std::string(one.name);
  return out;
}

}  // namespace derate
