#include "core/fair_place.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace derate {
namespace {

using namespace std::chrono_literals;

// "a" to "z" are people without a process on a GPU, "A" to "Z" are people with one, "0" is root.
// Places were last used in the order of `held`.
PlaceClaim claim(char who, int at) {
  const bool works = who >= 'A' && who <= 'Z';
  return {.person = who == '0' ? 0u : static_cast<std::uint32_t>(who),
          .works = works,
          .used = Instant{} + at * 1s};
}

struct Case {
  const char *held, *newcomer;
  bool granted;
  int instead_of;  // -1: no place is given up
};

TEST(FairPlace, IsGivenByPersonAndToWhoWorksFirst) {
  constexpr PlaceLimits kLimits{.all = 6, .of_one = 4};
  for (const Case& each : {
           Case{"", "a", true, -1},
           Case{"aab", "c", true, -1},
           Case{"baaaa", "a", true, 1},     // an own place, though there is room
           Case{"aaaabb", "c", true, 0},    // the person with most places
           Case{"abcdef", "g", false, -1},  // everybody has one
           Case{"aabbcd", "e", true, 0},
           Case{"aabbcc", "a", true, 0},    // an own one: nobody has two more
           Case{"AAAAbb", "C", true, 4},    // a person without work, however few these are
           Case{"AAAABB", "c", false, -1},  // a person without work takes no place of one with work
           Case{"AAAABB", "C", true, 0},
           Case{"AAAAbb", "c", true, 4},
           Case{"AAAAbc", "c", true, 5},
           Case{"AAAAbc", "d", false, -1},
           Case{"0000bb", "c", true, 4},
           Case{"0000bc", "d", false, -1},  // root's are left alone
           Case{"abcdef", "0", true, 0},
       }) {
    std::vector<PlaceClaim> held;
    for (const char* at = each.held; *at != '\0'; ++at)
      held.push_back(claim(*at, static_cast<int>(held.size())));
    const FairPlace place = fair_place(held, claim(each.newcomer[0], 100), kLimits);
    const std::string what = std::string(each.held) + " " + each.newcomer;
    EXPECT_EQ(place.granted, each.granted) << what;
    EXPECT_EQ(place.instead_of ? static_cast<int>(*place.instead_of) : -1, each.instead_of) << what;
  }
}

// A person who works gets all places of a person, however many ids without work there are.
TEST(FairPlace, ACrowdKeepsNobodyOut) {
  constexpr PlaceLimits kLimits{.all = 32, .of_one = 8};
  std::vector<PlaceClaim> held;
  const auto come = [&](PlaceClaim one) {
    const FairPlace place = fair_place(held, one, kLimits);
    if (!place.granted) return;
    if (place.instead_of) held.erase(held.begin() + static_cast<std::ptrdiff_t>(*place.instead_of));
    held.push_back(one);
  };
  const auto works = [&] {
    std::size_t out = 0;
    for (const PlaceClaim& each : held) out += each.works ? 1 : 0;
    return out;
  };
  for (int i = 0; i < 1000; ++i) {
    come({.person = 1000u + static_cast<std::uint32_t>(i), .used = Instant{} + i * 1s});
    if (i % 100 == 50) come({.person = 7, .works = true, .used = Instant{} + i * 1s});
    EXPECT_LE(held.size(), kLimits.all);
  }
  EXPECT_EQ(works(), 8u);
}

}  // namespace
}  // namespace derate
