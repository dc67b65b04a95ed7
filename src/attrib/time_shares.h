// Estimates each process's share of the GPU's time from utilisation readings that are too coarse to
// give it for one second.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "attrib/samples/sample_rate.h"
#include "attrib/samples/share_balance.h"
#include "attrib/samples/share_models.h"
#include "attrib/samples/work_state.h"
#include "attrib/tick.h"

namespace derate {

// How the busy time was shared by one model: a Dirichlet distribution.
struct ShareGuess {
  std::vector<double> parts;  // by the belief's processes; they add up to 1
  double strength = 1;        // the distribution's parameters add up to that
  double weight = 0;          // its probability; those of a belief add up to 1
  double lasts_s = 1;         // its error is the same for so long
};

// A process that had no sample and perhaps does not work.
struct WorkDoubt {
  std::size_t process = 0;  // its place in the belief
  double works = 0;         // the probability that it does
};

struct ShareBelief {
  // The processes that worked of late: their places in the tick. No other did anything, or there is
  // no room for it (TimeShares::kMost).
  std::vector<std::size_t> tenants;
  double busy = 0;  // of the tick's time, 0..1
  // One by each of share_models(); one alone where readings are exact; none while nothing works.
  std::vector<ShareGuess> guesses;
  std::vector<WorkDoubt> doubts;
  // The probability that they had equal parts nevertheless, as the driver may sample in the rhythm
  // of their turns, and those parts; empty where the samples exclude it.
  double equal_doubt = 0;
  std::vector<double> equal_parts;
};

// An H200's driver gives each of its samples, of 200 ms, to one process whole: two processes that
// had half of a second each read as 0.2 and 0.8, or 0 and 1, at random, and each one's memory
// utilisation is its part of the whole GPU's (measured; docs/attribute-results.md). Five samples
// say little of a second. The minutes before say more, if it is known in which way the processes
// share: each of share_models() foretells the next tick's samples and, with what the processes
// draw, its power; the more right it was of late, the more it weighs. A model must give each
// process what its samples say over minutes (ShareBalance). Readings that vary too little to be
// such samples are taken as they are.
//
// A process takes part from its first sample on, until it had none for five minutes; of more than
// kMost those that had none for the longest time are left out.
class TimeShares {
 public:
  // A longer tick ages what is known no more than that, s.
  static constexpr double kLongestTickS = 60;
  // Of the power's likelihood: its errors last for some ticks.
  static constexpr double kPowerCounts = 0.2;
  static constexpr std::size_t kMost = 64;

  // What the tick's samples say, with all that was seen before.
  ShareBelief look(const AttribTick& tick);

  // How likely the tick's power was by each guess of its belief, in logarithms. Before the next
  // look().
  void learn_models(const std::vector<double>& log_likelihood);
  // The same of a process in doubt: with it at work, against without.
  void learn_work(std::size_t process, double log_odds);

 private:
  struct Memory {
    double samples = 0;   // that were its own
    double expected = 0;  // that it would have had, were its weight 1, among those that worked
  };
  struct Process {
    std::string key;
    double reading = 0, samples = 0;  // in this tick
    double sampled_ago_s = 0;
    std::optional<double> part_before;  // of the tick before
    WorkState work;
    std::array<Memory, kShareModels> memory{};
    std::array<ShareBalance, kShareModels> balance{};
  };
  using Scores = std::array<double, kShareModels>;

  void follow(const AttribTick& tick, ShareBelief& belief);
  void leave_out(std::vector<Process>& now, std::vector<std::size_t>& places);
  void count_samples(double busy);
  void compare_readings();
  bool exact() const;
  ShareGuess as_read() const;
  void judge_models();
  double log_likelihood(std::size_t model) const;
  double unbalance(std::size_t model) const;
  Scores weights() const;
  void judge_work(const Scores& weights);
  double likelihood_of_miss(std::size_t model, std::size_t process) const;
  ShareGuess guess_of(std::size_t model) const;
  void remember(const std::vector<ShareGuess>& guesses);
  void doubt_samples(ShareBelief& belief) const;

  std::size_t basis(std::size_t model) const;
  double weight_of(std::size_t model, const Process& process) const;
  std::vector<double> parts_of(std::size_t model) const;
  double samples_behind(std::size_t model) const;

  SampleRate rate_;
  std::vector<Process> processes_;
  std::size_t turn_ = 0;  // of those for which there is no room
  double seconds_ = 0;
  // Samples of this tick: as far as they tell parts, and as far as they tell who works.
  double samples_ = 0, samples_of_all_ = 0;
  bool saturated_ = false;
  // Of the samples; of equal parts against the model that they are of; of the power.
  Scores evidence_{}, equal_evidence_{}, power_evidence_{};
  // Of readings: how far they are from whole samples, in how many ticks, and how much they change
  // from tick to tick, as seen and as by chance.
  double distance_ = 0, compared_ = 0, change2_ = 0, chance2_ = 0;
};

}  // namespace derate
