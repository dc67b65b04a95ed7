// derate policy forecast: what would come of other promises.
#include "api/requests.h"
#include "base/json.h"
#include "command_options.h"
#include "policy_forecast_view.h"
#include "service/http/api_call.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// The GPUs that are meant, as the daemon has them.
Result<std::vector<std::string>> chosen_gpus(const std::string& api, const std::string& choice) {
  const Json status = TRY(api_ask(api, StatusRead{choice}));
  std::vector<std::string> out;
  for (const Json& gpu : status.value("gpus", Json::array()))
    if (gpu.contains("uuid")) out.push_back(gpu["uuid"].get<std::string>());
  return out;
}

}  // namespace

Result<int> run_verb(const PolicyForecastOptions& options) {
  const auto api = TRY(find_api());
  Json all = Json::array();
  std::vector<ForecastAnswer> answers;
  for (const std::string& uuid : TRY(chosen_gpus(api, options.gpus))) {
    answers.push_back(TRY(answer_of<ForecastAnswer>(TRY(api_ask(api, ForecastRead{uuid})))));
    all.push_back(answer_json(answers.back()));
  }
  if (options.json) return print_json("policy forecast", {{"gpus", std::move(all)}});
  for (const ForecastAnswer& answer : answers) print("{}", forecast_text(answer));
  return 0;
}

}  // namespace derate::cli
