#include "core/dcgm_address.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(DcgmAddress, ParsesWhatItPrints) {
  for (const char* text : {"127.0.0.1:5555", "unix:/tmp/nv-hostengine"}) {
    const auto address = parse_dcgm_address(text);
    ASSERT_TRUE(address.ok());
    EXPECT_EQ(to_string(*address), text);
  }
  for (const char* bad : {"", "5555", "10.0.0.1:5555", "127.0.0.1:0", "127.0.0.1:65536", "unix:x",
                          "127.0.0.1:", ":5555", "host:5555"})
    EXPECT_FALSE(parse_dcgm_address(bad).ok()) << bad;
}

}  // namespace
}  // namespace derate
