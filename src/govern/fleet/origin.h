// Table of the origins of requests for GPUs from outside, a row each: configuration, service,
// command, unconfirmed command, pod, a scheduler's job, run, tuning. Which of several has a GPU is
// decided by the rank (Assignments::winner), what becomes of a request by decide() in
// assignments.h, and the users that may make one by the operations' roles and
// service/answers/request_rules.h.
#pragma once

#include <compare>
#include <cstdint>

namespace derate {

struct OriginRow {
  // Who makes its requests. What users ask for may lose no more than what operators have promised
  // for the GPU, and ends when they release it (beyond_operators()).
  enum class Asker : std::uint8_t { operators, users };
  // What becomes of a request while a higher origin has the GPU: it waits, or is refused, because
  // whoever tries something wants to see it.
  enum class Behind : std::uint8_t { waits, refused };

  const char* name;  // in status, events and history
  const char* why;   // of what it assigns, for people
  int rank;          // the highest of those that ask for a GPU has it
  Asker asker = Asker::operators;
  Behind behind = Behind::waits;
  const char* before_who = "";  // for people: "the run of " ann, but pod lab/train alone
};

class RequestOrigin {
 public:
  // `row` outlives it: a constant.
  constexpr explicit RequestOrigin(const OriginRow& row) : row_(&row) {}
  constexpr const OriginRow* operator->() const { return row_; }
  constexpr bool operator==(const RequestOrigin&) const = default;
  constexpr bool operator<(const RequestOrigin& other) const {
    return row_->rank < other.row_->rank;
  }

 private:
  const OriginRow* row_;
};
inline const char* to_string(RequestOrigin origin) { return origin->name; }

// The table. An unconfirmed command ends by itself unless it is confirmed in time.
inline constexpr OriginRow kOrigins[] = {
    {"configuration", "", 0},
    {"service", "a latency that a service promises", 5},
    {"command", "policy set", 10},
    {"unconfirmed", "policy set", 20, OriginRow::Asker::operators, OriginRow::Behind::refused},
    {"pod", "annotations of a pod", 24, OriginRow::Asker::users},
    {"job", "a scheduler's job", 25, OriginRow::Asker::users},
    {"run", "derate run", 30, OriginRow::Asker::users, OriginRow::Behind::waits, "the run of "},
    {"tuning", "tuned for a job", 40, OriginRow::Asker::users},
};
namespace origins {
inline constexpr RequestOrigin configuration{kOrigins[0]}, service{kOrigins[1]},
    command{kOrigins[2]}, unconfirmed{kOrigins[3]}, pod{kOrigins[4]}, job{kOrigins[5]},
    run{kOrigins[6]}, tuning{kOrigins[7]};
}  // namespace origins

}  // namespace derate
