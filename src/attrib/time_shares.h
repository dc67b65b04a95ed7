// Estimates each process's share of the GPU's time from utilisation readings that are too coarse to
// give it for one second.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "attrib/share_models.h"
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
  std::vector<std::size_t> tenants;  // the processes: their places in the tick
  double busy = 0;                   // of the tick's time, 0..1
  // One by each of share_models(); one alone where readings are exact; none while nothing works.
  std::vector<ShareGuess> guesses;
  std::vector<WorkDoubt> doubts;
};

// An H200's driver gives each of its samples, of 200 ms, to one process whole: two processes that
// had half of a second each read as 0.2 and 0.8, or 0 and 1, at random, and each one's memory
// utilisation is its part of the whole GPU's (measured; docs/attribute-results.md). Five samples
// say little of a second. What was before says more, where it is known in which way the processes
// share: each of share_models() foretells the next tick's samples and, with what the processes
// draw, its power; the more right it was of late, the more it weighs.
// Readings that vary too little to be such samples are taken as they are.
class TimeShares {
 public:
  // A longer tick ages what is known no more than that, s.
  static constexpr double kLongestTickS = 60;
  // Of the power's likelihood: its errors last for some ticks.
  static constexpr double kPowerCounts = 0.5;

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
    double reading = 0, samples = 0;    // in this tick
    std::optional<double> part_before;  // of the tick before
    double works = 0.5;                 // the probability
    bool worked = false;                // it had a sample, ever
    std::array<Memory, kShareModels> memory{};
  };
  using Scores = std::array<double, kShareModels>;

  void follow(const AttribTick& tick, ShareBelief& belief);
  void count_samples(double busy);
  void compare_readings();
  bool exact() const;
  ShareGuess as_read() const;
  void go_on();
  void judge_models();
  double log_likelihood(std::size_t model) const;
  Scores weights() const;
  void judge_work(const Scores& weights);
  ShareGuess guess_of(std::size_t model) const;
  void remember();

  std::size_t basis(std::size_t model) const;
  double weight_of(std::size_t model, const Process& process) const;
  std::vector<double> parts_of(std::size_t model) const;
  double samples_behind(std::size_t model) const;

  std::vector<Process> processes_;
  double seconds_ = 0, samples_ = 0;  // of this tick
  bool saturated_ = false;
  Scores evidence_{}, power_evidence_{};
  double compared_ = 0;               // ticks, as far as remembered
  double distance_ = 0;               // of readings from whole samples
  double change2_ = 0, chance2_ = 0;  // of readings from tick to tick: as seen, and as by chance
};

}  // namespace derate
