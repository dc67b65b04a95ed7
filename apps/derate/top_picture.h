// The state of `derate top` and of the live view of `derate attribute`, as a value: GPUs and
// tenants; and the reader's choice of page, order and filter, with its keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/gpu_id.h"
#include "terminal/frame.h"
#include "terminal/key_press.h"
#include "top_card.h"

namespace derate::cli {

// Savings of a policy, estimated from its curves. Shares are of all energy that was used and
// what was saved (core/saving.h, saved_share).
struct TopSaving {
  double ratio = 0;
  std::optional<double> low_ratio, high_ratio;  // of its interval
  std::optional<double> baseline_joules;        // what it is a share of
  std::string since = {};                       // "2026-11-30 14:03"; empty: not known
};

struct TopTenant {
  int gpu = 0;  // index
  std::string key, name, user, group;
  std::string source;  // what its share is known from
  std::optional<double> watts, margin_watts, share, joules;
  std::optional<double> counted_s;     // how long `joules` counts; seconds
  std::optional<double> memory_bytes;  // of the GPU's memory
  bool unallocated = false;            // not a tenant: what nobody is charged with
};

struct TopGpu {
  GpuId id;
  std::optional<double> watts, limit_watts, clock_mhz, highest_clock_mhz, asked_clock_mhz;
  std::optional<double> utilisation, celsius;  // ratio; degrees
  std::optional<double> memory_utilisation;    // ratio: of the time in which memory was accessed
  TopCard card;                                // nothing where the GPU is not read
  std::optional<double> promise, expected_performance, beat_age_s, launch_unsteadiness;
  bool every_phase = false;
  std::string promise_state;  // "below for 12 s", as status has it; empty: nothing is promised
  bool below_promise = false, breaks_promise = false;  // by the daemon (promise_watch.h)
  bool needs_attention = false;
  std::string policy, how;            // empty: nobody governs it; "dry run, command of uid 7"
  std::string reason, trouble, work;  // why this clock; what is wrong; name and phase
  bool silent = false;                // it gives no reading
  std::optional<TopSaving> saving;
  std::optional<double> used_joules;    // all of it, where `saving` is empty, too
  Series power_history, clock_history;  // watts and MHz, a value a second, the newest last
};

struct TopPicture {
  std::string host, time;  // "14:03:59"
  std::vector<TopGpu> gpus;
  std::vector<TopTenant> tenants;
  std::string attribution;            // how the tenants' watts are known; empty: they are not
  std::vector<std::string> warnings;  // what is not as usual
  std::string closed = {};            // why the daemon has closed every GPU; empty: it has not
};

enum class TopPage : std::uint8_t { gpus, one_gpu, tenants };
enum class GpuOrder : std::uint8_t { index, power, clock, utilisation, loss, saving };
enum class TenantOrder : std::uint8_t { power, memory, gpu, energy, user };

struct TopChoice {
  TopPage page = TopPage::gpus;
  bool tenants_only = false;  // `derate attribute`: it has no other page
  bool help = false, frozen = false;
  bool typing = false;  // the filter
  std::string filter;   // UTF-8; rows without it are left out
  GpuOrder gpu_order = GpuOrder::index;
  TenantOrder tenant_order = TenantOrder::power;
  std::string gpu, tenant;                  // UUID and key of those selected
  std::size_t gpu_row = 0, tenant_row = 0;  // where they were last
  std::size_t rows_on_screen = 1;           // for a page up or down
};

const char* to_string(GpuOrder order);
const char* to_string(TenantOrder order);

// The rows to show in their order: of those that the filter leaves.
std::vector<const TopGpu*> shown_gpus(const TopPicture& picture, const TopChoice& choice);
std::vector<const TopTenant*> shown_tenants(const TopPicture& picture, const TopChoice& choice);
// Where the selected one is among them; where it was, when it is there no more.
std::size_t selected_row(const std::vector<const TopGpu*>& shown, const TopChoice& choice);
std::size_t selected_row(const std::vector<const TopTenant*>& shown, const TopChoice& choice);

// What a key does. True: it ends the view.
bool press(TopChoice& choice, const KeyPress& pressed, const TopPicture& picture);

// The loss that its policy expects.
std::optional<double> loss_of(const TopGpu& gpu);
std::string tenant_id(const TopTenant& tenant);

}  // namespace derate::cli
