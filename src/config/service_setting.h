// A [[service]] entry of the configuration: an engine that serves a language model, its metrics
// page, the GPUs that it has, and what it promises.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "config/setting_info.h"
#include "core/configured_engine.h"

namespace derate {

struct ServiceSetting {
  std::string name;
  std::string metrics;  // http://HOST[:PORT][/PATH] (base/http_url.h)
  std::string model;
  std::vector<std::string> promise;  // as core/latency_promise.h reads them
  // These name its GPUs, or the processes that have them.
  std::string gpus, process, unit, container, user;
  int most_running = 0;
  ConfiguredEngine names;
  std::string where;  // FILE:LINE:COLUMN

  bool operator==(const ServiceSetting&) const = default;
};

// Calls visit(info, value) for every key of a [[service]]. `service` is a ServiceSetting, const or
// not.
void visit_service(auto& service, auto&& visit) {
  const Section key{"service", visit, Scope::service};
  key("name", "", "as `derate status` shows it", service.name);
  key("metrics", "",
      "the engine's page of metrics, http://HOST:PORT/metrics; derate-agent reads it, and unless "
      "its unit is changed it reaches this machine's loopback addresses alone",
      service.metrics);
  key("promise", "",
      "a list of one: the latency that its GPUs keep, \"itl p99 <= 50 ms\"; none: the engine is "
      "shown, and its GPUs are governed as without this entry",
      service.promise);
  key("gpus", "", "its GPUs, by index, UUID or PCI bus id, comma-separated", service.gpus);
  key("process", "",
      "its GPUs are those of this program, a name or a pattern with *, ? and [...], in letters of "
      "any case (vLLM's worker: VLLM::EngineCore)",
      service.process);
  key("unit", "", "and whose processes are in this unit of systemd, such as vllm.service",
      service.unit);
  key("container", "", "and whose processes are in this container, 12 digits of its ID or more",
      service.container);
  key("user", "",
      "and whose processes this user of the machine owns, a name of /etc/passwd or a number: "
      "others may start programs of the same name",
      service.user);
  key("model", "", "the model whose metrics count; empty: the page may have one", service.model);
  key("most_running", "",
      "requests that the engine runs at a time at most (vLLM: --max-num-seqs); 0: not known",
      service.most_running, 0, 100'000);
  key("itl_metric", "",
      "of an engine that Derate does not know: its histogram of the time from token to token, "
      "without _bucket",
      service.names.between_tokens);
  key("ttft_metric", "", "its histogram of the time to the first token", service.names.first_token);
  key("running_metric", "", "its number of requests that run", service.names.running);
  key("waiting_metric", "", "its number of requests that wait", service.names.waiting);
  key("kv_share_metric", "", "its share of the room for contexts, 0 to 1", service.names.kv_share);
  key("prompt_tokens_metric", "", "its count of tokens of prompts", service.names.prompt_tokens);
  key("generated_tokens_metric", "", "its count of generated tokens",
      service.names.generated_tokens);
  key("steps_metric", "", "its count of engine steps", service.names.steps);
  key("model_label", "", "the label that names the model", service.names.model_label);
}

// Errors: invalid_argument, for a key's value or what keys have to be together, naming it.
Result<void> check_service(const ServiceSetting& service);

}  // namespace derate
