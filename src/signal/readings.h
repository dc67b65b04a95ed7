// Mean and noise of what is read again and again while the clock is one.
#pragma once

#include <optional>

namespace derate {

// Mean and noise of one signal's readings at one clock.
class Readings {
 public:
  void add(double value);
  // What was learned of the noise stays.
  void clear() { *this = Readings(noise_); }
  int count() const { return count_; }
  double mean() const { return sum_ / count_; }
  // Of one reading, from what follows what; no less than `step` rounds away.
  double variance(double step) const;
  // Of the mean's log, if readings are independent. Rounding by coarser steps than `step` is
  // learned: where noise does not reach from one value to the next, no number of readings removes
  // it.
  double relative_variance(double step) const;
  // Of the variance of one, at most so much falls only with the number of readings, as of
  // independent ones: by how means of kBlock that follow each other differ. The rest is what one
  // has too much and the next too little. 1 until kFewBlocks differences are known.
  double independent_share() const;
  static constexpr int kBlock = 4, kFewBlocks = 8;

  Readings() = default;

 private:
  struct Noise {
    double variance = 0;
    int differences = 0;
    void add(double difference, double most);
  };
  struct Noises {
    Noise of_one, of_blocks;
    // The smallest difference of two readings that follow each other and differ, and how many did.
    double grain = 0;
    int changes = 0;
  };
  double rounding_left(double step) const;
  explicit Readings(const Noises& noises) : noise_(noises) {}
  int count_ = 0;
  double sum_ = 0, block_sum_ = 0;
  std::optional<double> last_, last_block_;
  Noises noise_;
};

}  // namespace derate
