#include "integ/cuda_visible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <tuple>

#include "base/text.h"
#include "integ/test_seen_gpus.h"

namespace derate {
namespace {

// What a value shows, as "2 0"; "none"; "?" where the order is not known.
std::string shown(const std::string& value, const SeenGpus& seen, const std::string& order = "") {
  const auto gpus = cuda_visible_gpus(value, order, seen);
  if (!gpus.ok()) return "?";
  std::string out;
  for (const int at : *gpus) out += (out.empty() ? "" : " ") + std::to_string(at);
  return out.empty() ? "none" : out;
}

SeenGpus four() { return seen_gpus({"H200", "H200", "H200", "H200"}); }

// Docs and code have one table: docs/run.md.
TEST(CudaVisible, TheTableOfTheDocumentIsWhatItDoes) {
  const auto page = read_file(std::string(DERATE_SOURCE_DIR) + "/docs/run.md");
  ASSERT_TRUE(page.ok());
  int cases = 0;
  bool inside = false;
  for (const std::string_view line : split(*page, '\n')) {
    if (line.starts_with("| `CUDA_VISIBLE_DEVICES`")) inside = true;
    if (!inside || line.starts_with("|---") || line.starts_with("| `CUDA_")) continue;
    if (!line.starts_with("|")) break;
    const auto cells = split(line, '|');
    ASSERT_GE(cells.size(), 3u);
    std::string value(trim(cells[1]));
    value = value == "(empty)" ? "" : value.substr(1, value.size() - 2);
    for (int gpu = 0; gpu < 4; ++gpu) {
      const std::string place = "GPU-" + std::string(1, static_cast<char>('A' + gpu));
      for (std::size_t at; (at = value.find(place)) != std::string::npos;)
        value.replace(at, place.size(), seen_uuid(gpu));
    }
    EXPECT_EQ(shown(value, four()), std::string(trim(cells[2]))) << line;
    ++cases;
  }
  EXPECT_GE(cases, 20);
}

TEST(CudaVisible, NumbersOfMixedGpusAreKnownInPcisOrderAlone) {
  SeenGpus mixed = seen_gpus({"V100", "H200", "H200"});
  EXPECT_EQ(shown("0", mixed), "?");
  EXPECT_EQ(shown("0", mixed, "FASTEST_FIRST"), "?");
  EXPECT_EQ(shown("0", mixed, "PCI_BUS_ID"), "0");
  EXPECT_EQ(shown("2,1,0", mixed), "2 1 0");  // all of them need no order
  EXPECT_EQ(shown("7", mixed), "none");
  EXPECT_EQ(shown(seen_uuid(0), mixed), "0");
  const auto refused = cuda_visible_gpus("0", "", mixed);
  EXPECT_NE(refused.error().message.find("CUDA_DEVICE_ORDER=PCI_BUS_ID"), std::string::npos);
  EXPECT_NE(refused.error().message.find("UUID"), std::string::npos);
  // NVML's order is not always that of the buses.
  std::swap(mixed.gpus[0], mixed.gpus[2]);
  EXPECT_EQ(shown("0", mixed, "PCI_BUS_ID"), "2");
  mixed.silent = 1;
  EXPECT_EQ(shown("0", mixed, "PCI_BUS_ID"), "?");
  EXPECT_EQ(shown(seen_uuid(0), mixed), "2");
}

TEST(CudaVisible, InstancesStandForTheirGpu) {
  SeenGpus seen = four();
  seen.gpus[1].mig = true;
  seen.gpus[1].instances = {{"MIG-1111-a", 3, 0}, {"MIG-1111-b", 4, 0}};
  EXPECT_EQ(shown("MIG-1111-a", seen), "1");
  EXPECT_EQ(shown("MIG-1111-a,MIG-1111-b", seen), "1");
  EXPECT_EQ(shown("MIG-1111-b,0", seen), "1");
  EXPECT_EQ(shown("MIG-1111", seen), "none");
  EXPECT_EQ(shown("MIG-1111-a,MIG-1111-a", seen), "none");
  EXPECT_EQ(shown("MIG-" + seen_uuid(1) + "/3/0", seen), "1");
  EXPECT_EQ(shown("MIG-" + seen_uuid(1) + "/9/0", seen), "none");
  EXPECT_EQ(shown("MIG-" + seen_uuid(0) + "/3/0", seen), "none");
  EXPECT_EQ(shown("0", seen), "?");
}

// --- a second implementation, from the rules of the report alone ---------------------------------

// The UUIDs that the command reaches; empty: nobody knows.
using Reach = std::optional<std::set<std::string>>;

std::vector<std::string> in_cuda_order(const SeenGpus& seen, const std::string& order,
                                       bool& known) {
  std::map<std::tuple<unsigned, unsigned, unsigned>, std::string> by_bus;
  std::set<std::string> kinds;
  bool mig = false;
  for (const SeenGpu& gpu : seen.gpus) {
    unsigned domain = 0, bus = 0, device = 0;
    std::sscanf(gpu.id.pci_bus_id.c_str(), "%x:%x:%x", &domain, &bus, &device);
    by_bus[{domain, bus, device}] = gpu.id.uuid;
    kinds.insert(gpu.id.name);
    mig = mig || gpu.mig;
  }
  std::vector<std::string> out;
  for (const auto& [bus, uuid] : by_bus) out.push_back(uuid);
  known = seen.silent == 0 &&
          (out.size() == 1 || (!mig && (kinds.size() == 1 || order == "PCI_BUS_ID")));
  return out;
}

Reach numbers_reach(const std::vector<std::string>& items, const SeenGpus& seen,
                    const std::string& order) {
  bool known = false;
  const auto gpus = in_cuda_order(seen, order, known);
  std::vector<long> numbers;
  for (const std::string& item : items) {
    // As scanf reads a number: blanks, a sign, digits.
    std::istringstream text(item);
    long number = -1;
    if (!(text >> number) || number < 0 || number >= static_cast<long>(gpus.size())) break;
    numbers.push_back(number);
  }
  std::set<std::string> out;
  for (const long number : numbers) out.insert(gpus[static_cast<std::size_t>(number)]);
  if (out.size() != numbers.size()) return std::set<std::string>();
  const bool mig =
      std::any_of(seen.gpus.begin(), seen.gpus.end(), [](auto& gpu) { return gpu.mig; });
  const bool all = out.size() == gpus.size() && !mig && seen.silent == 0;
  if (!out.empty() && !known && !all) return std::nullopt;
  return out;
}

// Names of devices to the GPUs that have them: each item is the beginning of one name alone.
Reach names_reach(const std::vector<std::string>& items,
                  const std::multimap<std::string, std::string>& devices) {
  std::vector<std::string> found;
  std::set<std::string> out;
  for (const std::string& item : items) {
    std::vector<std::pair<std::string, std::string>> matches;
    for (const auto& [name, gpu] : devices)
      if (name.compare(0, item.size(), item) == 0) matches.emplace_back(name, gpu);
    if (matches.size() != 1) break;
    found.push_back(matches[0].first);
    out.insert(matches[0].second);
  }
  for (std::size_t i = 0; i < found.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (found[i] == found[j]) return std::set<std::string>();
  return out;
}

Reach reach(const std::string& value, const std::string& order, const SeenGpus& seen) {
  std::vector<std::string> items;
  std::stringstream all(value);
  for (std::string item; std::getline(all, item, ',');) items.push_back(item);
  std::multimap<std::string, std::string> gpus, instances;
  for (const SeenGpu& gpu : seen.gpus) {
    gpus.emplace(gpu.id.uuid, gpu.id.uuid);
    for (const SeenInstance& each : gpu.instances) instances.emplace(each.uuid, gpu.id.uuid);
  }
  const std::string kind = value.substr(0, 4);
  if (kind != "GPU-" && kind != "MIG-") return numbers_reach(items, seen, order);
  for (std::size_t i = 0; i < items.size(); ++i)
    if (items[i].substr(0, 4) != kind) items.resize(i);
  return names_reach(items, kind == "GPU-" ? gpus : instances);
}

// --- random machines and environments ------------------------------------------------------------

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  // 1 to 8 GPUs of one kind or several, in any order of buses; UUIDs that begin alike.
  SeenGpus machine() {
    static constexpr const char* kKinds[] = {"Tesla V100", "NVIDIA H200", "NVIDIA A100"};
    const int kinds = 1 + below(3), count = 1 + below(8);
    SeenGpus out;
    std::vector<int> buses;
    for (int i = 0; i < count; ++i) buses.push_back(0x10 + 7 * i);
    std::shuffle(buses.begin(), buses.end(), random_);
    for (int i = 0; i < count; ++i) {
      SeenGpu gpu;
      gpu.id = {i, fmt::format("GPU-{:02x}{:02x}c0de-{:x}", below(3), below(3), i),
                fmt::format("00000000:{:02X}:00.0", buses[static_cast<std::size_t>(i)]),
                kKinds[below(kinds)]};
      gpu.mig = below(12) == 0;
      for (int j = 0; gpu.mig && j < 1 + below(3); ++j)
        gpu.instances.push_back({fmt::format("MIG-{:x}{:x}-{:x}", below(2), i, j), j + 1, 0});
      out.gpus.push_back(std::move(gpu));
    }
    out.silent = below(20) == 0 ? 1 : 0;
    return out;
  }

  std::string value(const SeenGpus& machine) {
    std::string out;
    const int style = below(4), items = below(5);
    for (int i = 0; i < items; ++i) out += (i == 0 ? "" : ",") + item(machine, style);
    return out;
  }

 private:
  std::string item(const SeenGpus& machine, int style) {
    const int count = static_cast<int>(machine.gpus.size());
    const SeenGpu& gpu = machine.gpus[static_cast<std::size_t>(below(count))];
    const int what = below(8) == 0 ? below(4) : style;  // one item in eight is of another kind
    if (what == 0) return cut(gpu.id.uuid);
    if (what == 1 && !gpu.instances.empty())
      return cut(
          gpu.instances[static_cast<std::size_t>(below(static_cast<int>(gpu.instances.size())))]
              .uuid);
    static constexpr const char* kOdd[] = {
        "", "-1", "one", "+", "all", "99999999999999999999", "-0", "GPU-", "MIG-", "0x1", " "};
    if (below(8) == 0) return kOdd[below(static_cast<int>(std::size(kOdd)))];
    static constexpr const char* kForms[] = {"{}",  "{}",  "{}",    " {}",
                                             "{} ", "+{}", "{}gpu", "\t{}"};
    const int number = below(10) == 0 ? below(12) : below(count);
    return fmt::format(fmt::runtime(kForms[below(static_cast<int>(std::size(kForms)))]), number);
  }
  // A whole name most of the time, else its beginning.
  std::string cut(const std::string& name) {
    const int left = below(3) == 0 ? 4 + below(static_cast<int>(name.size()) - 3) : 1000;
    return name.substr(0, static_cast<std::size_t>(left));
  }

  std::mt19937 random_;
};

// A GPU that is chosen and that the command cannot reach: none, in 10,000 environments.
TEST(CudaVisible, AgreesWithASecondImplementationOnRandomMachines) {
  constexpr int kEnvironments = 10'000;
  Draw draw(38);
  int none = 0, some = 0, unknown = 0;
  for (int i = 0; i < kEnvironments; ++i) {
    const SeenGpus machine = draw.machine();
    const std::string value = draw.value(machine);
    const std::string order =
        std::array{"", "PCI_BUS_ID", "FASTEST_FIRST"}[static_cast<std::size_t>(draw.below(3))];
    const auto chosen = cuda_visible_gpus(value, order, machine);
    const Reach wanted = reach(value, order, machine);
    ASSERT_EQ(chosen.ok(), wanted.has_value()) << i << " '" << value << "' " << order;
    if (!chosen.ok()) {
      ++unknown;
      continue;
    }
    std::set<std::string> uuids;
    for (const int at : *chosen) uuids.insert(machine.gpus[static_cast<std::size_t>(at)].id.uuid);
    ASSERT_EQ(uuids, *wanted) << i << " '" << value << "' " << order;
    ASSERT_EQ(uuids.size(), chosen->size());
    ++(uuids.empty() ? none : some);
  }
  // Each outcome was drawn often enough to say something.
  EXPECT_GT(none, 500);
  EXPECT_GT(some, 2000);
  EXPECT_GT(unknown, 500);
}

}  // namespace
}  // namespace derate
