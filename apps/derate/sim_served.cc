#include "sim_served.h"

#include <fmt/format.h>

#include "core/gpu_id.h"
#include "fakenvml/return_codes.h"

namespace derate::cli {

using fakenvml::get_text;

std::string sim_directory(const SimDirectory& options) {
  return options.directory.empty() ? fakenvml::default_directory() : options.directory;
}

Result<std::unique_ptr<fakenvml::SimClient>> connect_sim(const SimDirectory& options) {
  return fakenvml::SimClient::connect(sim_directory(options));
}

Result<std::vector<int>> served_gpus(const fakenvml::SimClient& client, const std::string& choice) {
  std::vector<GpuId> ids;
  for (unsigned int i = 0; i < client.state().gpus; ++i) {
    const fakenvml::GpuIdentity& identity = client.state().identity[i];
    ids.push_back({static_cast<int>(i), get_text(identity.uuid), get_text(identity.pci_bus_id),
                   get_text(identity.name)});
  }
  return select_gpus(ids, choice);
}

Result<fakenvml::Reply> ask_sim(fakenvml::SimClient& client, const fakenvml::Request& request) {
  const auto reply = client.ask(request);
  if (!reply) return Error{Errc::gpu_lost, "the server of the simulated GPUs has gone away"};
  if (reply->code == 0) return *reply;
  const std::string why = get_text(reply->message);
  return Error{fakenvml::errc_of(reply->code),
               why.empty() ? fmt::format("the server refused (NVML error {})", reply->code) : why};
}

}  // namespace derate::cli
