#include "base/http_url.h"

#include <gtest/gtest.h>

namespace derate {
namespace {

TEST(HttpUrl, HasHostPortAndPath) {
  const auto parsed = [](const char* url) {
    const auto out = parse_http_url(url);
    return out.ok() ? out->authority() + " " + out->path : "";
  };
  EXPECT_EQ(parsed("http://collector"), "collector:80 /");
  EXPECT_EQ(parsed("HTTP://Collector:4318/a/b?c=d"), "collector:4318 /a/b?c=d");
  EXPECT_EQ(parsed("http://[::1]:4318"), "[::1]:4318 /");
  for (const char* wrong :
       {"", "collector:4318", "https://collector", "http://", "http://a b/", "http://a:0",
        "http://a:70000", "http://a/b c", "http://a/#b", "http://user@a/"})
    EXPECT_EQ(parsed(wrong), "") << wrong;
}

TEST(HttpUrl, HostsAreNamesOrAddressesWithOrWithoutAPort) {
  EXPECT_EQ(host_of("GPU7.example.org:80"), "gpu7.example.org");
  EXPECT_EQ(host_of("[::1]:9410"), "[::1]");
  for (const char* wrong : {"", ":80", "a:b", "a:80:80", "[]", "[::1", "[::1]80", "a b", "a/b"})
    EXPECT_EQ(host_of(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace derate
