// The measurements of `derate energy`, for people, as JSON and as CSV.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "telemetry/energy_windows.h"

namespace derate::cli {

// All windows of a name together.
struct WindowSum {
  std::size_t count = 0;
  Duration time{};
  // Of each GPU that was in one of them, by its number; empty when one of them is not known.
  std::map<std::size_t, std::optional<Joules>> energy;
};

// Windows by name; a program that makes names without end is cut off, and that is told.
class WindowSums {
 public:
  static constexpr std::size_t kMostNames = 1000;
  void add(const WindowEnergy& window);
  const std::map<std::string, WindowSum>& by_name() const { return by_name_; }
  std::size_t left_out() const { return left_out_; }  // windows

 private:
  std::map<std::string, WindowSum> by_name_;
  std::size_t left_out_ = 0;
};

struct EnergyAccount {
  std::vector<std::string> command;  // empty: none
  std::optional<int> exit_code;
  WindowEnergy total;
  std::vector<GpuId> gpus;
  WindowSums windows;
  std::vector<std::string> troubles;  // of readings that failed
};

std::string energy_text(const EnergyAccount& account);
nlohmann::ordered_json energy_json(const EnergyAccount& account);

// The log's first line and one of a window, without line ends. GPUs that are not in it have empty
// cells.
std::string energy_log_heading(std::span<const GpuId> gpus);
std::string energy_log_row(const WindowEnergy& window, WallTime begin, std::size_t gpus);

}  // namespace derate::cli
