#include "policy/published_serving/published_serving.h"

namespace derate {

std::span<const PolicyInfo> serving_rivals() {
  static const PolicyInfo rivals[] = {serving_pid_info(), linear_itl_info(), agft_info()};
  return rivals;
}

}  // namespace derate
