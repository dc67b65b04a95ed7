// The card of `derate top` and `derate status`: memory, PCIe link, fan, encoder, decoder and errors
// of one GPU.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/clock.h"

namespace derate::cli {

struct TopLink {
  std::optional<double> generation, lanes;            // now; an idle link is slower
  std::optional<double> most_generation, most_lanes;  // that the card and its slot allow
  std::optional<double> tx_bytes, rx_bytes;           // a second, from and to the GPU
};

struct TopXid {
  int code = 0;
  std::string text;
  std::optional<WallTime> time;
  std::optional<double> count;  // of all Xids since derated opened the GPU
};

struct TopCard {
  std::optional<double> memory_used, memory_total;  // bytes
  TopLink link;
  std::optional<double> fan, encoder, decoder;   // ratios
  std::optional<double> corrected, uncorrected;  // ECC errors since the driver was loaded
  std::optional<TopXid> xid;                     // the last of the card, else of a program
};

// Whether a GPU's last reading, as status has it, is so old that what was read then holds no more.
// A single reading that failed is no silence yet.
bool is_silent(const nlohmann::ordered_json& gpu);

// `gpu`: as status has it; nothing of one that is silent. A field of another type than it should
// have is missing.
TopCard card_at(const nlohmann::ordered_json& gpu);

// Binary multiples of bytes, a unit of the larger one: "41/80G", "0.4/24G", "-/80G"; empty where
// nothing is known.
std::string memory_cell(const TopCard& card);
// "512 MiB", "41.2 GiB".
std::string memory_text(double bytes);
// Each empty where nothing is known: "41.2 of 80.0 GiB (52 %)"; "gen 1 x16, up to gen 5 x16";
// "rx 1.2 GB/s, tx 310 MB/s"; "3 corrected, 0 uncorrected"; "79 at 14:03:59 (the GPU has ...)".
std::string used_memory_text(const TopCard& card);
std::string link_text(const TopLink& link);
std::string link_rates_text(const TopLink& link);
std::string ecc_text(const TopCard& card);
std::string last_xid_text(const TopXid& xid);

}  // namespace derate::cli
