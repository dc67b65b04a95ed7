// GPUs that do not answer: keeps apart a GPU whose driver call hangs, or that is lost, and a host
// that is late with all of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/units.h"

namespace derate {

enum class GpuAnswer : std::uint8_t {
  yes,     // there is a reading
  late,    // no answer of the driver, but its call has not been out for long
  hung,    // the same, and the call has been out for longer than a call may take
  failed,  // the driver answered with an error
  gone,    // the driver says that the GPU is lost
};

// Of one GPU, or of more than half of them at once.
struct AnswerNews {
  enum class Kind : std::uint8_t {
    stuck,        // of one: the driver has not answered for kStuckAfter
    lost,         // of one: the driver says so, or there was no reading for kLostAfter
    found,        // of one that was stuck or lost
    host_late,    // of many: they did not answer for `time`, and do again
    driver_hung,  // of many: they have not answered for kDriverHungAfter
    driver_back,  // of the same: they answer again
  };
  Kind kind = Kind::stuck;
  std::vector<std::string> gpus;  // UUIDs, ascending
  Duration time{};                // for how long there was no answer
  // host_late: of how many GPUs; how many times the host was late in all, since the news before.
  std::size_t of = 0;
  std::uint64_t times = 1;
  bool operator==(const AnswerNews&) const = default;
};

// More than half of the GPUs, of two at least, that cease to answer within kTogether have one
// cause, and it is not a GPU: a host without a processor left, a machine that was suspended, or the
// driver as a whole. Until no more than half are silent, none of them is reported alone; from then
// on the silence of those that are left counts anew.
class AnswerWatch {
 public:
  static constexpr Duration kStuckAfter = std::chrono::seconds(2);  // docs/operations.md
  static constexpr Duration kLostAfter = std::chrono::seconds(5);
  static constexpr Duration kTogether = std::chrono::seconds(1);
  // A host that is late for less is no news, and one that is late again within a minute is counted.
  static constexpr Duration kHostLateAfter = std::chrono::seconds(1);
  static constexpr Duration kHostLateEvery = std::chrono::minutes(1);
  static constexpr Duration kDriverHungAfter = std::chrono::seconds(30);
  // A host is no excuse for a longer silence of one GPU.
  static constexpr Duration kExcusedFor = std::chrono::minutes(1);

  // The program itself got no processor until `now`: the silence of GPUs counts anew from then on.
  void excuse(Instant now);
  // How a GPU answered at that time. Times ascend.
  void note(const std::string& gpu, GpuAnswer answer, Instant time);
  // The news after a round.
  std::vector<AnswerNews> settle(Instant now);
  // The GPUs are closed: nothing is known of them any more.
  void forget();

 private:
  struct Gpu {
    GpuAnswer answer = GpuAnswer::yes;
    std::optional<Instant> silent_since;
    Instant counts_from{};                     // no earlier: before, many were silent together
    bool excused = false;                      // it is one of those that are silent together now
    std::optional<AnswerNews::Kind> reported;  // stuck or lost
    Instant reported_since{};                  // and silent since then
  };
  struct Together {
    Instant since{};
    bool reported = false;  // as driver_hung
    std::set<std::string> gpus;
  };
  std::optional<Instant> together_since() const;
  static AnswerNews news_of(AnswerNews::Kind kind, const Together& together, Instant now);
  void settle_together(Instant now, std::vector<AnswerNews>& out);
  void note_host_late(AnswerNews news);
  void settle_gpu(const std::string& name, Gpu& gpu, Instant now, std::vector<AnswerNews>& out);

  std::map<std::string, Gpu> gpus_;
  std::optional<Together> together_;
  std::optional<AnswerNews> host_late_;    // that waits to be reported
  std::optional<Instant> host_late_told_;  // when one was last reported
};

}  // namespace derate
