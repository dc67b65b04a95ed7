#include "integ/cuda_visible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <tuple>

#include "base/json.h"
#include "base/text.h"
#include "integ/test_seen_gpus.h"

namespace derate {
namespace {

// The GPUs that a value shows, as "2 0"; "none"; "?" if the order is not known.
std::string shown(const std::string& value, const SeenGpus& seen,
                  const std::optional<std::string>& order = {}) {
  const auto gpus = cuda_visible_gpus(value, order, seen);
  if (!gpus.ok()) return "?";
  std::string out;
  for (const int at : *gpus) out += (out.empty() ? "" : " ") + std::to_string(at);
  return out.empty() ? "none" : out;
}

// GPU-A stands for the beginning of a UUID, GPU-A-whole for all of it, <A> for its digits.
std::string in_uuids(std::string value) {
  for (int gpu = 0; gpu < 4; ++gpu) {
    const std::string beginning = "GPU-" + std::string(1, static_cast<char>('A' + gpu));
    for (std::size_t at; (at = value.find(beginning + "-whole")) != std::string::npos;)
      value.replace(at, beginning.size() + 6, seen_uuid(gpu));
    const std::string digits = "<" + beginning.substr(4) + ">";
    for (std::size_t at; (at = value.find(digits)) != std::string::npos;)
      value.replace(at, digits.size(), seen_uuid(gpu).substr(4));
    for (std::size_t at; (at = value.find(beginning)) != std::string::npos;)
      value.replace(at, beginning.size(), seen_uuid(gpu).substr(0, 12));
  }
  return value;
}

SeenGpus four() { return seen_gpus({"H200", "H200", "H200", "H200"}); }

// The documentation and the code share one table: docs/run.md.
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
    EXPECT_EQ(shown(value, four()), std::string(trim(cells[2]))) << line;
    ++cases;
  }
  EXPECT_GE(cases, 20);
}

std::optional<std::string> text_or_none(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(std::string(json));
}

// A machine of tests/clients/cuda_visible.json.
SeenGpus machine_of(const Json& described) {
  SeenGpus out = seen_gpus(std::vector<std::string>(described["gpus"].size(), ""));
  for (std::size_t i = 0; i < out.gpus.size(); ++i) {
    const Json& from = described["gpus"][i];
    SeenGpu& gpu = out.gpus[i];
    gpu.id.name = from["name"];
    gpu.mig = from.value("mig", false);
    gpu.instances_unread = from.value("unread", false);
    for (const Json& each : from.value("instances", Json::array()))
      gpu.instances.push_back({each[0], each[1], each[2]});
    if (!from.contains("bus")) continue;
    gpu.id.pci_bus_id =
        from["bus"].is_null() ? "" : fmt::format("00000000:{:02X}:00.0", int(from["bus"]));
  }
  out.silent = described.value("silent", std::vector<int>());
  return out;
}

// The Python reader is tested with the same cases.
TEST(CudaVisible, CasesOfBothReaders) {
  const auto text = read_file(std::string(DERATE_SOURCE_DIR) + "/tests/clients/cuda_visible.json");
  ASSERT_TRUE(text.ok());
  const Json all = parse_json(*text);
  for (const Json& each : all["cases"]) {
    const SeenGpus seen = machine_of(all["machines"][std::string(each[0])]);
    EXPECT_EQ(shown(in_uuids(each[1]), seen, text_or_none(each[2])), std::string(each[3])) << each;
  }
  EXPECT_GE(all["cases"].size(), 50u);
}

// As measured with a driver, which tests/clients/cuda_driver.json names.
TEST(CudaVisible, ShowsWhatADriverShows) {
  const auto text = read_file(std::string(DERATE_SOURCE_DIR) + "/tests/clients/cuda_driver.json");
  ASSERT_TRUE(text.ok());
  const Json all = parse_json(*text);
  for (const Json& row : all["rows"]) {
    SeenGpus seen = seen_gpus({"H100", "H100"});
    for (std::size_t i = 0; i < 2; ++i)
      seen.gpus[i].id.uuid = all["machines"][std::string(row[0])][i];
    std::string wanted;
    for (const int at : row[3]) wanted += (wanted.empty() ? "" : " ") + std::to_string(at);
    EXPECT_EQ(shown(row[1], seen, text_or_none(row[2])), wanted.empty() ? "none" : wanted) << row;
  }
  EXPECT_GE(all["rows"].size(), 190u);
}

TEST(CudaVisible, ARefusalSaysWhatToDo) {
  const auto why = [](const std::string& value, const SeenGpus& seen) {
    const auto gpus = cuda_visible_gpus(value, {}, seen);
    return gpus.ok() ? "" : gpus.error().message;
  };
  const std::string mixed = why("0", seen_gpus({"V100", "H200"}));
  EXPECT_NE(mixed.find("CUDA_DEVICE_ORDER=PCI_BUS_ID"), std::string::npos) << mixed;
  EXPECT_NE(mixed.find("UUID"), std::string::npos) << mixed;
  SeenGpus hung = four();
  hung.silent = {4};
  EXPECT_NE(why("GPU-0000", hung).find("whole UUIDs"), std::string::npos);
}

// --- what NVIDIA's guides say, on machines of which all is known ---------------------------------

// A machine as its driver sees it: includes GPUs that do not answer to NVML, and CUDA's own order.
struct Truth {
  std::vector<SeenGpu> gpus;         // in NVML's order
  std::vector<bool> silent;          // for each GPU
  std::map<std::string, int> speed;  // of each product
};

SeenGpus seen_of(const Truth& truth) {
  SeenGpus out;
  for (std::size_t i = 0; i < truth.gpus.size(); ++i) {
    if (truth.silent[i])
      out.silent.push_back(static_cast<int>(i));
    else
      out.gpus.push_back(truth.gpus[i]);
  }
  return out;
}

// CUDA C++ Programming Guide, "CUDA environment variables": CUDA_DEVICE_ORDER.
std::vector<const SeenGpu*> enumerated(const Truth& truth, const std::string& order) {
  std::vector<const SeenGpu*> out;
  for (const SeenGpu& gpu : truth.gpus) out.push_back(&gpu);
  const auto key = [&](const SeenGpu* gpu) {
    unsigned domain = 0, bus = 0;
    std::sscanf(gpu->id.pci_bus_id.c_str(), "%x:%x", &domain, &bus);
    const int slowness = order == "PCI_BUS_ID" ? 0 : -truth.speed.at(gpu->id.name);
    return std::tuple(slowness, domain, bus);
  };
  std::sort(out.begin(), out.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
  return out;
}

// The device that an item of the list means: a GPU and, for a MIG instance, its name. Empty:
// invalid.
using Meant = std::optional<std::pair<std::string, std::string>>;

bool is_name(const std::string& item) {
  return item.substr(0, 4) == "GPU-" || item.substr(0, 4) == "MIG-";
}

// "abbreviated forms are allowed; simply specify enough digits from the beginning of the GPU UUID
// to uniquely identify that GPU in the target system"; a GPU without MIG goes by MIG-, too (the
// driver's rows above).
Meant by_uuid(const std::string& item, const Truth& truth) {
  std::vector<Meant> all;
  const auto begins = [&](const std::string& uuid) {
    return item.size() > 4 && uuid.find(item.substr(4)) == 4;
  };
  const bool mig = item.substr(0, 4) == "MIG-";
  for (const SeenGpu& gpu : truth.gpus) {
    if (begins(gpu.id.uuid) && !(mig && gpu.mig)) all.push_back({{gpu.id.uuid, ""}});
    for (const SeenInstance& each : gpu.instances)
      if (mig && begins(each.uuid)) all.push_back({{gpu.id.uuid, each.uuid}});
  }
  return all.size() == 1 ? all.front() : std::nullopt;
}

Meant by_index(const std::string& item, const std::vector<const SeenGpu*>& devices) {
  std::istringstream text(item);
  long number = -1;
  if (!(text >> number) || number < 0 || number >= static_cast<long>(devices.size()))
    return std::nullopt;
  return {{devices[static_cast<std::size_t>(number)]->id.uuid, ""}};
}

// "If one of the indices is invalid, only the devices whose index precedes the invalid index are
// visible"; "Only single MIG instance enumeration is supported"; a repeat hides all.
std::vector<std::string> visible(const std::string& value, const std::string& order,
                                 const Truth& truth) {
  std::vector<std::string> out;
  std::set<std::pair<std::string, std::string>> before;
  std::stringstream items(value);
  for (std::string item; std::getline(items, item, ',');) {
    if (is_name(value) && !is_name(item)) break;
    const Meant meant =
        is_name(value) ? by_uuid(item, truth) : by_index(item, enumerated(truth, order));
    if (!meant) break;
    if (!before.insert(*meant).second) return {};
    out.push_back(meant->first);
  }
  if (std::any_of(before.begin(), before.end(), [](auto& each) { return !each.second.empty(); }))
    out.resize(1);
  return out;
}

// On these machines the reader may refuse.
bool is_doubtful(const Truth& truth) {
  std::set<std::string> kinds;
  bool doubt = false;
  for (std::size_t i = 0; i < truth.gpus.size(); ++i) {
    kinds.insert(truth.gpus[i].id.name);
    doubt = doubt || truth.silent[i] || truth.gpus[i].mig;
  }
  return doubt || kinds.size() > 1;
}

// --- random machines and environments ------------------------------------------------------------

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int below(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }

  // 1 to 8 GPUs of one or several kinds, in any order of buses; UUIDs with equal beginnings.
  Truth machine() {
    static constexpr const char* kKinds[] = {"Tesla V100", "NVIDIA H200", "NVIDIA A100"};
    const int kinds = 1 + below(3), count = 1 + below(8);
    Truth out{.gpus = {},
              .silent = {},
              .speed = {{kKinds[0], below(9)}, {kKinds[1], below(9)}, {kKinds[2], below(9)}}};
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
        gpu.instances.push_back({fmt::format("MIG-{:x}e{:x}-{:x}", below(2), i, j), j + 1, 0});
      out.gpus.push_back(std::move(gpu));
      out.silent.push_back(below(40) == 0);
    }
    return out;
  }

  std::string value(const Truth& machine) {
    std::string out;
    const int style = below(4), items = below(5);
    for (int i = 0; i < items; ++i) out += (i == 0 ? "" : ",") + item(machine, style);
    return out;
  }

 private:
  std::string item(const Truth& machine, int style) {
    const int count = static_cast<int>(machine.gpus.size());
    const SeenGpu& gpu = machine.gpus[static_cast<std::size_t>(below(count))];
    const int what = below(8) == 0 ? below(4) : style;  // an item in eight is of another kind
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
  // Returns the whole name in most cases, otherwise its beginning.
  std::string cut(const std::string& name) {
    const int left = below(3) == 0 ? 4 + below(static_cast<int>(name.size()) - 3) : 1000;
    return name.substr(0, static_cast<std::size_t>(left));
  }

  std::mt19937 random_;
};

// 10,000 machines and environments: the chosen GPUs are those that the command sees. The reader
// refuses only doubtful cases.
TEST(CudaVisible, ChoosesWhatTheGuidesShowOnRandomMachines) {
  constexpr int kEnvironments = 10'000;
  Draw draw(38);
  int none = 0, some = 0, refused = 0;
  for (int i = 0; i < kEnvironments; ++i) {
    const Truth machine = draw.machine();
    const SeenGpus seen = seen_of(machine);
    const std::string value = draw.value(machine);
    const std::string order =
        std::array{"", "PCI_BUS_ID", "FASTEST_FIRST"}[static_cast<std::size_t>(draw.below(3))];
    const auto chosen = cuda_visible_gpus(
        value, order.empty() ? std::nullopt : std::optional<std::string_view>(order), seen);
    if (!chosen.ok()) {
      ASSERT_TRUE(is_doubtful(machine)) << i << " '" << value << "' " << order;
      ++refused;
      continue;
    }
    std::vector<std::string> uuids;
    for (const int at : *chosen) uuids.push_back(seen.gpus[static_cast<std::size_t>(at)].id.uuid);
    const auto wanted = visible(value, order, machine);
    // If all GPUs are meant, no order is needed, and the order among them does not matter.
    ASSERT_EQ(std::set(uuids.begin(), uuids.end()), std::set(wanted.begin(), wanted.end()))
        << i << " '" << value << "' " << order;
    ASSERT_EQ(uuids.size(), wanted.size());
    ++(uuids.empty() ? none : some);
  }
  // Each outcome was drawn often enough for a conclusion.
  EXPECT_GT(none, 500);
  EXPECT_GT(some, 2000);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace derate
