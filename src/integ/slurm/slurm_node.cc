#include "integ/slurm/slurm_node.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/json.h"
#include "base/text.h"
#include "integ/proc_files.h"
#include "integ/slurm/gres_list.h"

namespace derate {
namespace {

// Printed by `scontrol show config` where GpuFreqDef is not set (22.05.8).
constexpr const char* kNoFrequency = "high,memory=high";

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

// Seconds since the epoch at which the slurmd began that this process comes from; empty: there is
// none.
std::optional<double> slurmd_began(const std::string& proc) {
  const auto stat = read_file(proc + "/stat");
  if (!stat.ok()) return std::nullopt;
  std::optional<double> boot;
  for (const std::string_view line : split(*stat, '\n'))
    if (line.starts_with("btime ")) boot = parse_double(trim(line.substr(6)));
  constexpr int kMostAncestors = 32;
  std::int64_t pid = ::getppid();
  for (int i = 0; i < kMostAncestors && pid > 1 && boot; ++i) {
    const auto text = read_proc_file(proc, pid, "stat");
    const auto process = text ? parse_proc_stat(*text) : std::nullopt;
    if (!process) return std::nullopt;
    if (process->name == "slurmd")
      return *boot +
             static_cast<double>(process->started) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    pid = process->parent;
  }
  return std::nullopt;
}

// Another text where a file of the configuration, or slurmd, is another than before.
std::string fingerprint(const SlurmNodeQuery& query) {
  std::string out =
      fmt::format("{} {} {}", query.config, query.node, slurmd_began(query.proc).value_or(0));
  const std::string folder = folder_of(query.config);
  for (const std::string& path :
       std::array{query.config, folder + "gres.conf", folder + "cgroup.conf"}) {
    struct ::stat found {};
    if (::stat(path.c_str(), &found) == 0)
      out += fmt::format(" {}:{}:{}.{}", found.st_ino, found.st_size, found.st_mtim.tv_sec,
                         found.st_mtim.tv_nsec);
  }
  return out;
}

Json json_of(const SlurmNode& node, const std::string& print) {
  Json minors = Json::array();
  for (const auto& minor : node.minors) minors.push_back(minor ? Json(*minor) : Json());
  return {{"of", print},
          {"minors", std::move(minors)},
          {"constrained", node.constrained},
          {"default_frequency", node.default_frequency}};
}

std::optional<SlurmNode> cached(const SlurmNodeQuery& query, const std::string& print) {
  if (query.cache.empty()) return std::nullopt;
  const auto text = read_file(query.cache);
  if (!text.ok()) return std::nullopt;
  const Json json = parse_json(*text);
  if (!json.is_object() || text_at(json, "of") != print) return std::nullopt;
  const auto minors = json.find("minors"), constrained = json.find("constrained");
  if (minors == json.end() || !minors->is_array() || constrained == json.end() ||
      !constrained->is_boolean())
    return std::nullopt;
  SlurmNode out;
  for (const Json& minor : *minors)
    out.minors.push_back(minor.is_number_integer() ? std::optional(minor.get<int>())
                                                   : std::nullopt);
  out.constrained = constrained->get<bool>();
  out.default_frequency = text_at(json, "default_frequency");
  return out;
}

Result<void> check_age(const SlurmNodeQuery& query) {
  const auto began = slurmd_began(query.proc);
  constexpr double kTick = 2;  // btime and ticks are both rounded
  for (const char* const name : {"gres.conf", "cgroup.conf"}) {
    const std::string path = folder_of(query.config) + name;
    struct ::stat found {};
    if (::stat(path.c_str(), &found) != 0) continue;
    if (began && static_cast<double>(found.st_mtim.tv_sec) > *began + kTick)
      return Error{
          Errc::not_supported,
          fmt::format("{} has changed since slurmd was started, which goes by what it read "
                      "then: restart slurmd",
                      path)};
  }
  return {};
}

// ConstrainDevices of this node's own cgroup.conf: scontrol reports that of slurmctld's machine.
bool constrains_here(const SlurmNodeQuery& query) {
  const auto text = read_file(folder_of(query.config) + "cgroup.conf");
  if (!text.ok()) return false;
  bool out = false;
  for (std::string_view line : split(*text, '\n')) {
    line = line.substr(0, line.find('#'));
    const std::size_t at = line.find('=');
    if (at == std::string_view::npos || to_lower(trim(line.substr(0, at))) != "constraindevices")
      continue;
    out = to_lower(trim(line.substr(at + 1))) == "yes";
  }
  return out;
}

}  // namespace

Result<SlurmNode> parse_slurm_config(std::string_view text) {
  SlurmNode out;
  bool version = false, cgroups = false, devices = false;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t at = line.find('=');
    if (at == std::string_view::npos) continue;
    const std::string_view key = trim(line.substr(0, at)), value = trim(line.substr(at + 1));
    version |= key == "SLURM_VERSION";
    if (key == "TaskPlugin") cgroups = value.find("task/cgroup") != std::string_view::npos;
    if (key == "ConstrainDevices") devices = to_lower(value) == "yes";
    if (key == "GpuFreqDef" && value != kNoFrequency && value != "(null)")
      out.default_frequency = std::string(value.substr(0, 100));
  }
  if (!version)
    return Error{Errc::bad_data, "scontrol show config: it does not print a configuration"};
  out.constrained = cgroups && devices;
  return out;
}

std::size_t gpu_count(std::string_view text) {
  std::size_t out = 0;
  const std::size_t at = text.find(" Gres=");
  if (at == std::string_view::npos) return 0;
  std::string_view list = text.substr(at + 6);
  list = list.substr(0, list.find_first_of(" \n"));
  // "gpu:a100:4(S:0-1),gpu:2,shard:8": commas between brackets belong to a socket's list.
  int depth = 0;
  std::string word;
  const auto take = [&] {
    const auto parts = split(std::string_view(word).substr(0, word.find('(')), ':');
    if (parts.front() == "gpu" && parts.size() > 1)
      out += static_cast<std::size_t>(
          std::max<std::int64_t>(parse_integer(parts.back()).value_or(0), 0));
    word.clear();
  };
  for (const char c : list) {
    depth += c == '(' ? 1 : c == ')' ? -1 : 0;
    if (c == ',' && depth == 0)
      take();
    else
      word += c;
  }
  take();
  return out;
}

Result<SlurmNode> slurm_node(const SlurmNodeQuery& query) {
  TRY(check_age(query));
  const std::string print = fingerprint(query);
  if (const auto known = cached(query, print)) return *known;
  SlurmNode out = TRY(parse_slurm_config(TRY(query.run({"scontrol", "show", "config"}))));
  out.constrained = out.constrained && constrains_here(query);
  const auto list = TRY(query.run({"slurmd", "-G", "-N", query.node, "-f", query.config}));
  for (const std::string& file : TRY(parse_gres_list(list)))
    out.minors.push_back(nvidia_minor(file));
  const auto count = gpu_count(TRY(query.run({"scontrol", "show", "node", query.node})));
  if (count != out.minors.size())
    return Error{Errc::not_supported,
                 fmt::format("slurmd -G lists {} GPUs, but slurmctld has {} of this node",
                             out.minors.size(), count)};
  if (!query.cache.empty())
    (void)write_file_atomically(query.cache, json_text(json_of(out, print)), Durable::no, 0600)
        .ok();
  return out;
}

}  // namespace derate
