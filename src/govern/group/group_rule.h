// A set of GPUs under one rule: those that go in step have one clock, those of a budget have a sum
// of watts. Groups may overlap: a unit in step may lie within a node's budget.
//
// In each tick, first all rules bound their members (core/envelope_bound.h), then one rule or the
// GPU's own policy decides within the narrowest of all bounds, then safety (govern/safety.h).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/decision.h"
#include "core/envelope.h"
#include "core/envelope_bound.h"
#include "core/estimate.h"
#include "core/saving.h"
#include "govern/group/savings.h"

namespace derate {

// A policy and its parameters as text: where two GPUs have the same, one can decide for both.
std::string policy_key(const PolicyInfo& info, const ParamValues& params);

// One of the governor's GPUs in one tick. Rules get all of them, by their numbers.
struct GroupGpu {
  // Its own policy: forecasts, where nobody leads it.
  PolicySeat* seat = nullptr;
  std::string_view policy_key = {};    // empty: it decides for itself alone
  const Envelope* envelope = nullptr;  // the administrator's
  const WorkStatus* work = nullptr;
  Duration tick{};
  bool dry_run = false;
  std::optional<Megahertz> locked = {};

  const Estimate* estimate = nullptr;      // null: it is not due in this tick
  std::vector<EnvelopeBound> bounds = {};  // of this tick: rules add theirs
  const Envelope* allowed = nullptr;       // within all bounds
  std::optional<Decision> decision = {};   // a rule's, in place of its own policy's
  std::optional<std::size_t> pace = {};    // whose readings decided, where a rule did
};

// What a rule does not say it leaves to the other rules and to each GPU's policy.
class GroupRule {
 public:
  virtual ~GroupRule() = default;

  // Before anything is read: who is in it from now on.
  virtual void gather(std::span<const GroupGpu> /*gpus*/) {}
  // The GPU at `at` is about to get another policy: it leaves, and takes its own seat with it.
  virtual void leave(std::size_t /*at*/, std::span<const GroupGpu> /*gpus*/) {}
  // The member whose policy decides for the GPU at `at`, and with which it has its ticks.
  virtual std::optional<std::size_t> leader_of(std::size_t /*at*/) const { return std::nullopt; }

  // Adds to the members' bounds, by their estimates and what their policies forecast.
  virtual void bound(std::span<GroupGpu> /*gpus*/) {}
  // Decides for members that are due, within what is allowed them.
  virtual void decide(std::span<GroupGpu> /*gpus*/) {}
  // The part of the member at `at` in what the leader's policy says was saved.
  virtual Saving part_of(std::size_t /*at*/, const Saving& of_leader) const { return of_leader; }
};

}  // namespace derate
