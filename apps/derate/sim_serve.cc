// derate sim serve: simulated GPUs for any NVML client.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/json.h"
#include "base/own_files.h"
#include "base/text.h"
#include "fakenvml/sim_server.h"
#include "service/transport/signals.h"
#include "sim_served.h"
#include "terminal/output.h"

namespace derate::cli {
namespace {

namespace fs = std::filesystem;

constexpr Duration kStep = std::chrono::milliseconds(10);

Result<std::vector<SimChip>> named_chips(const SimServeOptions& options) {
  std::vector<SimChip> out;
  // The activity of chips without GPM is a host engine's to tell (derate sim dcgm).
  for (const std::string& name : options.chips)
    out.push_back(with_dcgm_sensors(TRY(open_sim_chip(name))));
  if (out.empty()) out.push_back(with_dcgm_sensors(sim_chips().front()));
  return out;
}

// The chip of each GPU.
Result<std::vector<const SimChip*>> chips_of(const SimServeOptions& options,
                                             const std::vector<SimChip>& named) {
  std::vector<const SimChip*> chips;
  const auto count = options.gpus > 0 ? static_cast<std::size_t>(options.gpus) : named.size();
  for (std::size_t i = 0; i < count; ++i) chips.push_back(&named[i % named.size()]);
  if (chips.size() > fakenvml::kGpusMax)
    return Error{Errc::invalid_argument,
                 fmt::format("{} GPUs: allowed are up to {}", chips.size(), fakenvml::kGpusMax)};
  return chips;
}

void print_text(const std::vector<const SimChip*>& chips, const std::string& directory,
                const Result<std::string>& library) {
  std::string names;
  for (const SimChip* chip : chips)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", chip->name);
  print("# {} simulated GPU{}: {}. Ctrl-C ends them.\n", chips.size(), chips.size() == 1 ? "" : "s",
        names);
  print("export DERATE_SIM={}\n", shell_quoted(directory));
  if (!library.ok()) {
    print("# {}\n", library.error().message);
    return;
  }
  print("export DERATE_NVML_LIBRARY={}\n", shell_quoted(*library));
  print("# other programs: LD_LIBRARY_PATH={} PROGRAM\n",
        shell_quoted(fs::path(*library).parent_path().string()));
}

void print_document(const std::vector<const SimChip*>& chips, const std::string& directory,
                    const Result<std::string>& library) {
  Json gpus = Json::array();
  for (std::size_t i = 0; i < chips.size(); ++i)
    gpus.push_back({{"index", i},
                    {"chip", chips[i]->name},
                    {"uuid", sim_capability(*chips[i], static_cast<int>(i)).id.uuid}});
  print_json("sim serve", {{"directory", directory},
                           {"library", library.ok() ? Json(*library) : Json()},
                           {"pid", ::getpid()},
                           {"gpus", std::move(gpus)}});
}

// In steps of the physics; a machine that was too busy catches up at the next one.
void serve_until_stopped(fakenvml::SimServer& server, Clock& clock) {
  Instant next = clock.now();
  while (stop_signal() == 0) {
    server.advance();
    next = std::max(next + kStep, clock.now());
    while (stop_signal() == 0 && clock.now() < next) server.answer(next - clock.now());
  }
}

}  // namespace

Result<int> run_verb(const SimServeOptions& options) {
  const auto named = TRY(named_chips(options));
  const auto chips = TRY(chips_of(options, named));
  std::error_code ignored;
  const std::string directory = fs::absolute(sim_directory(options), ignored).string();
  SystemClock clock;
  watch_signals();
  fakenvml::ServerOptions server_options;
  server_options.directory = directory;
  server_options.chips = chips;
  server_options.seed = static_cast<std::uint64_t>(options.seed);
  server_options.speed = options.speed;
  server_options.minors = options.minors;
  if (!options.minors.empty() && options.minors.size() != chips.size())
    return Error{Errc::invalid_argument, fmt::format("--minors: {} numbers for {} GPUs",
                                                     options.minors.size(), chips.size())};
  if (!options.mig.empty()) server_options.mig = options.mig == "none" ? "" : options.mig;
  const auto server = TRY(fakenvml::SimServer::create(server_options, clock));
  if (options.json)
    print_document(chips, directory, own_nvml_library());
  else
    print_text(chips, directory, own_nvml_library());
  TRY(finish_output());
  serve_until_stopped(*server, clock);
  return 0;
}

}  // namespace derate::cli
