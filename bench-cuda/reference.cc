#include "reference.h"

#include <cmath>

namespace derate::bench_cuda {

OptionPrices black_scholes(double spot, double strike, double years, double rate,
                           double volatility) {
  const auto normal_cdf = [](double d) { return 0.5 * std::erfc(-d / std::sqrt(2.0)); };
  const double deviation = volatility * std::sqrt(years);
  const double d1 = (std::log(spot / strike) + rate * years) / deviation + deviation / 2;
  const double d2 = d1 - deviation;
  const double discounted = strike * std::exp(-rate * years);
  return {spot * normal_cdf(d1) - discounted * normal_cdf(d2),
          discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)};
}

double walsh_at(const std::vector<float>& input, std::uint64_t k) {
  double sum = 0;
  for (std::uint64_t i = 0; i < input.size(); ++i)
    sum += __builtin_parityll(i & k) ? -input[i] : input[i];
  return sum;
}

double convolution_at(const Image& image, int channel, const std::vector<float>& weights, int side,
                      int y, int x) {
  const int middle = side / 2;
  double sum = 0;
  for (int dy = 0; dy < side; ++dy)
    for (int dx = 0; dx < side; ++dx) {
      const int from_y = (y + middle - dy + image.width) % image.width;
      const int from_x = (x + middle - dx + image.width) % image.width;
      const int pixel = from_y * image.width + from_x;
      sum += double{weights[dy * side + dx]} * image.values[pixel * image.channels + channel];
    }
  return sum;
}

}  // namespace derate::bench_cuda
