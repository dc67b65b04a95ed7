// derate sim dcgm and dcgm-fault: a DCGM host engine over the served GPUs, and what goes wrong with
// it.
#include <fmt/format.h>

#include <filesystem>

#include "base/json.h"
#include "base/number.h"
#include "base/own_files.h"
#include "base/text.h"
#include "core/dcgm_address.h"
#include "fakedcgm/engine_server.h"
#include "service/transport/signals.h"
#include "sim_served.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

// By default it listens in the folder of the served GPUs. Errors: those of parse_dcgm_address().
Result<std::string> engine_address(const SimDcgmAddress& options, const std::string& directory) {
  if (options.listen.empty()) return directory + "/hostengine";
  const auto address = TRY(parse_dcgm_address(options.listen));
  return address.host.empty() ? address.path : to_string(address);
}

void print_environment(const std::string& address) {
  const bool tcp = !address.starts_with('/');
  print("# A DCGM host engine of the simulated GPUs. Ctrl-C ends it.\n");
  print("# derate config: [dcgm] address = \"{}{}\"\n", tcp ? "" : "unix:", address);
  if (const auto library = own_dcgm_library(); library.ok())
    print("export DERATE_DCGM_LIBRARY={}\n", shell_quoted(*library));
  else
    print("# {}\n", library.error().message);
}

}  // namespace

Result<int> run_verb(const SimDcgmOptions& options) {
  const auto client = TRY(connect_sim(options));
  std::error_code ignored;
  const std::string directory = std::filesystem::absolute(sim_directory(options), ignored).string();
  fakedcgm::HostEngine engine(client->state(), options.engine_version);
  const std::string address = TRY(engine_address(options, directory));
  const auto server = TRY(fakedcgm::EngineServer::create(address, engine));
  print_environment(address);
  TRY(finish_output());
  SystemClock clock;
  watch_signals();
  while (stop_signal() == 0 && client->alive()) server->serve(std::chrono::milliseconds(5), clock);
  return 0;
}

Result<int> run_verb(const SimDcgmFaultOptions& options) {
  Json request = {{"op", "faults"}};
  for (const std::string& fault : options.faults) {
    const std::size_t equals = fault.find('=');
    const auto number = parse_double(equals == std::string::npos ? "1" : fault.substr(equals + 1));
    if (!number) return Error{Errc::invalid_argument, fault + ": a number is wanted after the ="};
    request[fault.substr(0, equals)] = *number;
  }
  const std::string address = TRY(engine_address(options, sim_directory(options)));
  const UniqueFd socket = TRY(fakedcgm::connect_to(address));
  fakedcgm::Inbox inbox;
  std::optional<Json> answer;
  if (fakedcgm::send_packet(socket.get(), request))
    while (!(answer = inbox.take()) && inbox.read_from(socket.get())) continue;
  if (!answer) return Error{Errc::io, address + ": the host engine does not answer"};
  if (number_at(*answer, "code") == 0) return 0;
  return Error{Errc::invalid_argument,
               fmt::format("dcgm-fault: allowed are {}", fmt::join(fakedcgm::fault_names(), ", "))};
}

}  // namespace derate::cli
