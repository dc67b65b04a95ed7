#include "service/transport/subordinate_ids.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <fstream>

#include "base/test_folder.h"

namespace derate {
namespace {

std::optional<std::uint32_t> number_of(const std::string& name) {
  if (name == "root") return 0;
  if (name == "ann") return 1000;
  if (name == "bob") return 1001;
  if (name == "sys") return 999;
  return std::nullopt;
}

std::vector<SubordinateRange> ranges_of(const char* text) {
  return subordinate_ranges(text, number_of);
}

TEST(SubordinateIds, AreTheirOwner) {
  struct Case {
    const char* text;
    std::uint32_t uid, person;
  };
  for (const Case& each : {
           Case{"", 100000, 100000},
           Case{"ann:100000:65536\n", 99999, 99999},
           Case{"ann:100000:65536\n", 100000, 1000},
           Case{"ann:100000:65536\n", 165535, 1000},
           Case{"ann:100000:65536\n", 165536, 165536},
           Case{"ann:100000:65536", 1000, 1000},
           Case{"1001:100000:65536", 100001, 1001},  // by number
           Case{"ann:100000:10\nann:200000:10", 200005, 1000},
           Case{"ann:100000:10\nbob:100005:10", 100007, 1000},  // the first line counts
           Case{"ann:100000:10\nbob:100005:10", 100012, 1001},
           Case{"bob:100005:2\nann:100000:10", 100005, 1001},
           Case{"bob:100005:2\nann:100000:10", 100009, 1000},
           Case{"root:100000:65536", 100077, 100000},   // does not share root's places
           Case{"carol:100000:65536", 165535, 100000},  // the name is not in passwd(5)
           // Parts of ranges for pods and containers: each part is a person.
           Case{"kubelet:65536:7208960", 65536, 65536},
           Case{"kubelet:65536:7208960", 131071, 65536},
           Case{"kubelet:65536:7208960", 131072, 131072},
           Case{"kubelet:65536:7208960", 7274495, 7208960},
           Case{"kubelet:65536:7208960", 7274496, 7274496},
           Case{"root:100000:1000000000", 1000099999, 1000048288},
           Case{"sys:100000:65536", 100077, 100000},
           Case{"ann:100000:65537", 100077, 100000},
           Case{"ann:100000:65537", 165536, 165536},
           Case{"root:100000:4294867295", 4294967294u, 4294936224u},
           Case{"ann:4294967290:100", 4294967294u, 1000},
           Case{"ann:4294967290:100", 4294967295u, 4294967295u},
           // Invalid lines give no range.
           Case{"ann:100000", 100000, 100000},
           Case{"ann:100000:0", 100000, 100000},
           Case{"ann:0:100", 0, 0},  // id 0 is always root
           Case{"ann:-5:100", 3, 3},
           Case{":100000:65536", 100000, 100000},
           Case{"# ann:1:2\n\nann:100000:65536", 100000, 1000},
           Case{"ann:100000:18446744073709551616", 100000, 100000},
       })
    EXPECT_EQ(person_of(ranges_of(each.text), each.uid), each.person)
        << each.text << " " << each.uid;
}

RC_GTEST_PROP(SubordinateIds, OfRangesThatOverlapTheFirstCounts, ()) {
  struct Drawn {
    std::uint32_t first, count;
  };
  std::string text;
  std::vector<Drawn> drawn;
  for (int i = *rc::gen::inRange(0, 8); i > 0; --i) {
    drawn.push_back({*rc::gen::inRange(1u, 60u), *rc::gen::inRange(1u, 30u)});
    text += std::to_string(1000 + drawn.size()) + ":" + std::to_string(drawn.back().first) + ":" +
            std::to_string(drawn.back().count) + "\n";
  }
  const auto ranges = ranges_of(text.c_str());
  for (std::uint32_t uid = 0; uid < 100; ++uid) {
    std::uint32_t wanted = uid;
    for (std::size_t i = drawn.size(); i-- > 0;)
      if (uid >= drawn[i].first && uid < drawn[i].first + drawn[i].count)
        wanted = 1001 + static_cast<std::uint32_t>(i);
    RC_ASSERT(person_of(ranges, uid) == wanted);
  }
}

TEST(SubordinateIds, AreReadAnewWhenTheFileHasChanged) {
  const Folder folder;
  const std::string file = folder.file("subuid"), users = folder.file("passwd");
  SubordinateIds ids(file, users);
  ids.renew();
  EXPECT_EQ(ids.person_of(100000), 100000u);
  std::ofstream(users) << "ann:x:1000:1000::/:/bin/sh\n";
  std::ofstream(file) << "ann:100000:65536\n";
  EXPECT_EQ(ids.person_of(100000), 100000u);
  ids.renew();
  EXPECT_EQ(ids.person_of(100000), 1000u);
  std::ofstream(file, std::ios::app) << "ann:300000:65536\n";
  ids.renew();
  EXPECT_EQ(ids.person_of(300000), 1000u);
}

}  // namespace
}  // namespace derate
