#include "doctor_view.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace derate::cli {
namespace {

DoctorFinding of_gpu(int gpu, DoctorLevel level, const std::string& what, const std::string& detail,
                     const std::string& remedy = "", const std::string& brief = "") {
  return {level, what, detail, remedy, gpu, "NVIDIA H200", brief};
}

std::vector<DoctorFinding> eight_gpus() {
  std::vector<DoctorFinding> out = {{DoctorLevel::ok, "driver", "550.1", "", {}, "", ""}};
  for (int gpu = 0; gpu < 8; ++gpu) {
    out.push_back(
        of_gpu(gpu, DoctorLevel::ok, "is", "GPU-" + std::to_string(gpu), "", "all readable"));
    if (gpu == 3)
      out.push_back(of_gpu(gpu, DoctorLevel::limit, "persistence mode", "off", "nvidia-smi -pm 1"));
  }
  return out;
}

TEST(DoctorText, LikeGpusAreOneLineAndALimitHasItsRemedy) {
  const std::string text = doctor_text(eight_gpus(), false);
  EXPECT_EQ(text,
            "ok    driver                     550.1\n"
            "ok    GPU 0-2,4-7                NVIDIA H200; all readable\n"
            "limit GPU 3                      NVIDIA H200; all readable\n"
            "limit GPU 3 persistence mode     off\n"
            "                                 -> nvidia-smi -pm 1\n"
            "\nDerate can work here, with the limits above.\n");
}

TEST(DoctorText, EachGpuHasItsLinesWhereTheyAreAskedFor) {
  const std::string text = doctor_text(eight_gpus(), true);
  for (const char* line :
       {"ok    GPU 0 is                   GPU-0\n", "ok    GPU 7 is                   GPU-7\n",
        "limit GPU 3 persistence mode     off\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST(DoctorJson, HasTheWorstLevelAndRemediesOfWhatIsNotGood) {
  const Json json = doctor_json(eight_gpus());
  EXPECT_EQ(json["level"], "limit");
  EXPECT_EQ(json["findings"].size(), 10u);
  for (const Json& finding : json["findings"])
    EXPECT_EQ(finding.contains("remedy"), finding["level"] != "ok") << finding;
}

}  // namespace
}  // namespace derate::cli
