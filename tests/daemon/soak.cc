// A week of the daemon's worker in virtual time, eight GPUs at work, GPUs lost and commands given
// on the way: memory, descriptors and threads once a day. Run by people: build/dev/tests/soak, or a
// month of one GPU: build/dev/tests/soak 30 1
#include <dirent.h>
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "base/text.h"
#include "house.h"

namespace derate::cli {
namespace {

using namespace std::chrono_literals;

// A line of /proc/self/status.
std::string status_of(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key + ":", 0) == 0) return std::string(trim(line.substr(key.size() + 1)));
  return "?";
}

int open_files() {
  int count = 0;
  if (DIR* folder = ::opendir("/proc/self/fd")) {
    while (::readdir(folder) != nullptr) ++count;
    ::closedir(folder);
  }
  return count - 3;  // itself, . and ..
}

// What an hour brings: a change of work, a command, a GPU that goes or comes back.
void live_an_hour(House& house, int gpus, int hour) {
  const int gpu = hour % gpus;
  static constexpr const char* kApps[] = {"GeMM", "BWtest", "XCiT", "ResN50"};
  house.work(gpu, kApps[hour % 4]);
  if (hour % 5 == 0) house.trouble(gpu).faults.gpu_lost = !house.trouble(gpu).faults.gpu_lost;
  if (hour % 7 == 0) {
    const std::string name = std::to_string((hour / 7) % gpus);
    house.ask(R"({"command":"policy-set","policy":"geepafs","gpus":")" + name + "\"}");
  }
  if (hour % 11 == 0) {
    house.ask(R"({"command":"pause"})");
    house.ask(R"({"command":"resume"})");
  }
  house.run(1h);
  house.logged.clear();
}

}  // namespace
}  // namespace derate::cli

int main(int argc, char** argv) {
  using namespace derate;
  const auto days = argc > 1 ? parse_integer(argv[1]) : 7;
  const auto gpus = argc > 2 ? parse_integer(argv[2]) : 8;
  if (!days || *days < 1 || !gpus || *gpus < 1 || *gpus > 64) {
    fmt::print(stderr, "usage: soak [DAYS [GPUS]]\n");
    return 2;
  }
  const int count = static_cast<int>(*gpus);
  cli::House house(count);
  Settings settings;
  settings.govern = true;
  settings.policy = "assure";
  house.start(settings);
  fmt::print("{:>4} {:>14} {:>6} {:>8} {:>10}\n", "day", "resident", "files", "threads",
             "journals");
  for (int day = 0; day <= *days; ++day) {
    fmt::print("{:>4} {:>14} {:>6} {:>8} {:>10}\n", day, cli::status_of("VmRSS"), cli::open_files(),
               cli::status_of("Threads"), house.left().size());
    std::fflush(stdout);
    for (int hour = 0; day < *days && hour < 24; ++hour)
      cli::live_an_hour(house, count, static_cast<int>(day) * 24 + hour);
  }
  for (const auto& trouble : house.troubles) trouble->faults = {};
  house.run(std::chrono::minutes(2));
  const bool restored = house.worker->stop().ok();
  int locked = 0;
  for (const auto& sim : house.sims) locked += sim->locked() ? 1 : 0;
  fmt::print("stopped: {}, {} GPUs locked, {} journals left\n",
             restored ? "all given back" : "not all given back", locked, house.left().size());
  return restored && locked == 0 ? 0 : 1;
}
