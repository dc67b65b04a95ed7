// A DCGM host engine over the simulated GPUs: GPUs and MIG instances by numbers of its own, groups,
// watches of clients, values by period, and faults on demand. It knows no socket.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/dcgm/dcgm_abi.h"
#include "fakenvml/shared_state.h"

namespace derate::fakedcgm {

using Packet = nlohmann::ordered_json;

// Faults of an engine that runs; requests have each by its name.
struct Faults {
  bool paused = false;  // profiling: blanks
  bool taken = false;   // another process has the profiling hardware: watches fail
  bool no_module = false;
  bool zeros = false, frozen = false, lies = false;
  bool shuffled = false;  // values in another order
  double late_s = 0;      // values carry that age
};
// The names of all faults.
std::vector<std::string> fault_names();

class HostEngine {
 public:
  // `state` outlives it. `version`: "4.6.0".
  HostEngine(const fakenvml::State& state, std::string version);

  // Answers one request of a client. Anything may stand in it.
  Packet handle(std::uint64_t client, const Packet& request);
  // The client is gone, with all that was made for it.
  void forget(std::uint64_t client);
  // Measures what is due at that time, in microseconds since 1970.
  void measure(std::int64_t now_us);

 private:
  using Shares = std::vector<std::optional<double>>;  // of the fields, in their order
  // Sums of activity up to a moment, and of the time in which each share was known.
  struct Sums {
    std::vector<double> known, busy;
  };
  struct Value {
    std::int64_t time_us = 0;
    Shares shares;
  };
  struct Measured {
    std::int64_t period_us = 0, next_us = 0;
    std::optional<Sums> before;
    std::optional<Value> newest;
  };
  struct Watch {
    std::uint64_t client = 0;
    std::int64_t group = 0, period_us = 0;
    std::vector<unsigned int> gpus;
  };
  struct Group {
    std::uint64_t client = 0;
    std::string name;
    std::vector<dcgm::Entity> entities;
  };

  using Answer = Packet (HostEngine::*)(std::uint64_t client, const Packet& request);
  Packet set_faults(std::uint64_t client, const Packet& request);
  Packet version(std::uint64_t client, const Packet& request);
  Packet gpus(std::uint64_t client, const Packet& request);
  Packet metric_groups(std::uint64_t client, const Packet& request);
  Packet hierarchy(std::uint64_t client, const Packet& request);
  Packet group_create(std::uint64_t client, const Packet& request);
  Packet group_add(std::uint64_t client, const Packet& request);
  Packet group_destroy(std::uint64_t client, const Packet& request);
  Packet fields_create(std::uint64_t client, const Packet& request);
  Packet watch(std::uint64_t client, const Packet& request);
  Packet unwatch(std::uint64_t client, const Packet& request);
  Packet latest(std::uint64_t client, const Packet& request);

  unsigned int gpu_count() const { return state_.gpus; }
  // The simulated GPU's place; the engine counts from the other end.
  std::optional<unsigned int> place_of(unsigned int gpu) const;
  std::vector<dcgm::Entity> entities_of(unsigned int gpu) const;
  Sums sums_of(const dcgm::Entity& entity) const;
  Packet value_of(const dcgm::Entity& entity, dcgm::FieldId field) const;
  void take_periods();
  void measure(const dcgm::Entity& entity, Measured& measured, std::int64_t now_us);

  const fakenvml::State& state_;
  std::string version_;
  Faults faults_;
  std::map<std::int64_t, Group> groups_;  // of entities, and of fields
  std::int64_t last_group_ = 0;
  std::vector<Watch> watches_;
  std::map<dcgm::Entity, Measured> measured_;
};

}  // namespace derate::fakedcgm
