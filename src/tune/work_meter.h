// The rate of a job's work and its power, from its own reports of progress and the joules of its
// GPUs between them.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "core/work_status.h"

namespace derate {

// What lies between two reports.
struct WorkSpan {
  Instant begin{}, end{};
  double work = 0;  // in the job's own unit; above 0
  Joules energy{};  // of all of the job's GPUs

  Duration time() const { return end - begin; }
};

// Makes `into` longer by `span`: as if the second followed the first at once.
void add_span(WorkSpan& into, const WorkSpan& span);

// Makes spans of what is seen each round. Joules are known at rounds, reports come in between: the
// joules at a report are on the line between the two rounds around it.
class SpanMaker {
 public:
  // What is looked back at for a report that comes late.
  static constexpr Duration kKept = std::chrono::minutes(1);

  // `energy`: of all GPUs up to `now`, from any beginning; empty when it could not be read. `work`:
  // the newest report. Gives the span that it ends; empty when it says nothing new, is the first of
  // its source, or the joules up to it are not known yet.
  std::optional<WorkSpan> add(Instant now, std::optional<Joules> energy,
                              const std::optional<Progress>& work);
  // The instant of the newest report that was used.
  std::optional<Instant> last_report() const;

 private:
  struct Point {
    Instant time{};
    Joules energy{};
  };
  std::optional<Joules> energy_at(Instant time) const;

  std::deque<Point> points_;
  std::optional<Progress> last_;
  Joules energy_at_last_{};
};

struct WorkMeasure {
  double rate = 0;  // work per second
  Watts power{};
  // Relative standard error, the larger of the time's and the energy's of a unit of work; empty
  // while there are too few blocks to tell.
  std::optional<double> error;
  int blocks = 0;
  Duration time{};        // that it rests on
  std::size_t spans = 0;  // that came, pauses included

  // Relative, of one block.
  std::optional<double> scatter() const;

  bool operator==(const WorkMeasure&) const = default;
};

// The mean over spans at one setting. Spans are put together to blocks of at least kBlock, whose
// scatter gives the error. What came before a step in the rate (a job that warms up) is dropped.
class WorkMeter {
 public:
  // One reading of the energy counter, which moves in steps of 100 ms and is read at 1 Hz.
  static constexpr Duration kBlock = std::chrono::seconds(1);
  // A span that took so many times longer than the usual one for its work is a pause (evaluation, a
  // checkpoint) and no reading; told from kToTell spans on. Slower than that no setting is left to
  // be: the guard is at most 2.
  static constexpr double kPause = 3;
  static constexpr std::size_t kToTell = 4;
  static constexpr int kLeastBlocks = 3;  // of an error

  void clear() { spans_.clear(); }
  void add(const WorkSpan& span) { spans_.push_back(span); }
  // Empty before there is work.
  std::optional<WorkMeasure> measure() const;
  // What the pauses among the spans amount to; begin and end mean their length only.
  WorkSpan pauses() const;

 private:
  std::vector<bool> paused() const;
  std::vector<WorkSpan> blocks() const;

  std::vector<WorkSpan> spans_;
};

}  // namespace derate
