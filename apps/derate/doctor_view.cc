#include "doctor_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "gpu_groups.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// All that is told of one GPU; then of several.
struct GpuGroup {
  std::string name;
  std::vector<int> indices;
  std::vector<std::string> good;        // in a few words each
  std::vector<DoctorFinding> not_good;  // without their index
  bool same_as(const GpuGroup& other) const {
    return name == other.name && good == other.good &&
           std::equal(not_good.begin(), not_good.end(), other.not_good.begin(),
                      other.not_good.end(), [](const DoctorFinding& a, const DoctorFinding& b) {
                        return a.level == b.level && a.what == b.what && a.detail == b.detail &&
                               a.remedy == b.remedy;
                      });
  }
};

std::string line(DoctorLevel level, const std::string& what, const std::string& detail,
                 const std::string& remedy) {
  const Paint paint = level == DoctorLevel::ok ? Paint::good : Paint::bad;
  return fmt::format("{} {:<26} {}{}\n", toned(fmt::format("{:<5}", to_string(level)), paint), what,
                     detail, remedy.empty() ? "" : fmt::format("\n{:33}-> {}", "", remedy));
}

std::vector<GpuGroup> groups_of(const std::vector<DoctorFinding>& findings) {
  std::map<int, GpuGroup> gpus;
  for (const DoctorFinding& finding : findings) {
    if (!finding.gpu) continue;
    GpuGroup& gpu = gpus[*finding.gpu];
    gpu.name = finding.gpu_name;
    gpu.indices = {*finding.gpu};
    if (finding.level != DoctorLevel::ok)
      gpu.not_good.push_back(finding);
    else if (!finding.brief.empty())
      gpu.good.push_back(finding.brief);
  }
  std::vector<GpuGroup> out;
  for (const auto& entry : gpus) {  // no binding: clang 14 lets no lambda capture one
    const GpuGroup& gpu = entry.second;
    const auto same = std::find_if(out.begin(), out.end(),
                                   [&](const GpuGroup& group) { return group.same_as(gpu); });
    if (same == out.end())
      out.push_back(gpu);
    else
      same->indices.push_back(entry.first);
  }
  return out;
}

std::string group_text(const GpuGroup& group) {
  const std::string gpus = gpu_group_name(group.indices);
  DoctorLevel level = DoctorLevel::ok;
  for (const DoctorFinding& finding : group.not_good) level = std::max(level, finding.level);
  std::string out = line(level, gpus,
                         fmt::format("{}{}{}", group.name, group.good.empty() ? "" : "; ",
                                     fmt::join(group.good, "; ")),
                         "");
  for (const DoctorFinding& finding : group.not_good)
    out += line(finding.level, fmt::format("{} {}", gpus, finding.what), finding.detail,
                finding.remedy);
  return out;
}

// All that failed is the configuration's, or what an earlier governor has left.
bool only_to_mend(const std::vector<DoctorFinding>& findings) {
  return std::all_of(findings.begin(), findings.end(), [](const DoctorFinding& each) {
    return each.level != DoctorLevel::fail || each.what == "left over" ||
           each.what == "configuration";
  });
}

}  // namespace

const char* to_string(DoctorLevel level) {
  return level == DoctorLevel::ok ? "ok" : level == DoctorLevel::limit ? "limit" : "fail";
}

DoctorLevel worst_of(const std::vector<DoctorFinding>& findings) {
  DoctorLevel out = DoctorLevel::ok;
  for (const DoctorFinding& finding : findings) out = std::max(out, finding.level);
  return out;
}

std::string doctor_text(const std::vector<DoctorFinding>& findings, bool each_gpu) {
  std::string out;
  for (const DoctorFinding& finding : findings) {
    if (finding.gpu && !each_gpu) continue;
    const std::string what =
        finding.gpu ? fmt::format("GPU {} {}", *finding.gpu, finding.what) : finding.what;
    out += line(finding.level, what, finding.detail, finding.remedy);
  }
  if (!each_gpu)
    for (const GpuGroup& group : groups_of(findings)) out += group_text(group);
  const DoctorLevel level = worst_of(findings);
  return out + (level == DoctorLevel::ok      ? "\nDerate can work here.\n"
                : level == DoctorLevel::limit ? "\nDerate can work here, with the limits above.\n"
                : only_to_mend(findings)
                    ? "\nDerate can govern here once that which failed above is mended (`->`).\n"
                    : "\nDerate cannot govern a GPU here; `derate demo` and --sim need none.\n");
}

Json doctor_json(const std::vector<DoctorFinding>& findings) {
  Json list = Json::array();
  for (const DoctorFinding& finding : findings) {
    Json one = {{"level", to_string(finding.level)}};
    if (finding.gpu) one["gpu"] = *finding.gpu;
    one["what"] = finding.what;
    one["detail"] = finding.detail;
    if (!finding.remedy.empty()) one["remedy"] = finding.remedy;
    list.push_back(std::move(one));
  }
  return {{"level", to_string(worst_of(findings))}, {"findings", std::move(list)}};
}

}  // namespace derate::cli
