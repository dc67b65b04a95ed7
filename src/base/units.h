// Strong types for the quantities that Derate computes with. A Watts never becomes a Megahertz by
// accident, and only the products that physics has are defined. Raw numbers appear at the NVML,
// JSON, SQL and Prometheus edges only, where the name carries the unit.
#pragma once

#include <chrono>
#include <compare>

namespace derate {

// A double with a dimension. `Tag` names the unit; the constructor is explicit on purpose.
template <class Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(double value) : value_(value) {}

  // The number in the unit that the type's name states.
  constexpr double value() const { return value_; }

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity other) { return value_ += other.value_, *this; }
  constexpr Quantity& operator-=(Quantity other) { return value_ -= other.value_, *this; }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value_ + b.value_);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value_ - b.value_);
  }
  friend constexpr Quantity operator-(Quantity a) { return Quantity(-a.value_); }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.value_ * k); }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(a.value_ * k); }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.value_ / k); }
  friend constexpr double operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }

 private:
  double value_ = 0;
};

using Watts = Quantity<struct WattsTag>;
using Joules = Quantity<struct JoulesTag>;
using Megahertz = Quantity<struct MegahertzTag>;
using Celsius = Quantity<struct CelsiusTag>;
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;
// A ratio, 1 = the whole. NVML's integer percent n is Fraction(n / 100.0). Counters above 1 are
// kept as read: it is for the estimate to judge them.
using Fraction = Quantity<struct FractionTag>;

// Time runs on one monotonic clock whose epoch is the clock's own affair (see clock.h).
using Duration = std::chrono::nanoseconds;
struct MonotonicTimeline {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<MonotonicTimeline, duration>;
  static constexpr bool is_steady = true;
};
using Instant = MonotonicTimeline::time_point;
using WallTime = std::chrono::sys_time<Duration>;

constexpr double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
// Rounded to the nanosecond.
constexpr Duration from_seconds(double s) {
  const double nanos = s * 1e9;
  return Duration(static_cast<Duration::rep>(nanos < 0 ? nanos - 0.5 : nanos + 0.5));
}

constexpr Joules operator*(Watts w, Duration d) { return Joules(w.value() * seconds(d)); }
constexpr Joules operator*(Duration d, Watts w) { return w * d; }
constexpr Watts operator/(Joules j, Duration d) { return Watts(j.value() / seconds(d)); }

constexpr Fraction percent(double p) { return Fraction(p / 100.0); }
constexpr double as_percent(Fraction f) { return f.value() * 100.0; }

namespace literals {
constexpr Watts operator""_W(long double v) { return Watts(static_cast<double>(v)); }
constexpr Watts operator""_W(unsigned long long v) { return Watts(static_cast<double>(v)); }
constexpr Joules operator""_J(long double v) { return Joules(static_cast<double>(v)); }
constexpr Joules operator""_J(unsigned long long v) { return Joules(static_cast<double>(v)); }
constexpr Megahertz operator""_MHz(long double v) { return Megahertz(static_cast<double>(v)); }
constexpr Megahertz operator""_MHz(unsigned long long v) {
  return Megahertz(static_cast<double>(v));
}
constexpr Celsius operator""_degC(long double v) { return Celsius(static_cast<double>(v)); }
constexpr Celsius operator""_degC(unsigned long long v) { return Celsius(static_cast<double>(v)); }
}  // namespace literals

}  // namespace derate
