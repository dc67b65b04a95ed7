#include "top_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "base/when.h"

namespace derate::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

// A count or an amount that can be: more than any card has is a reader's or a driver's mistake.
std::optional<double> amount(std::optional<double> value) {
  constexpr double kMost = 1e15;
  return value && *value >= 0 && *value <= kMost ? value : std::nullopt;
}

std::optional<double> ratio(std::optional<double> value) {
  const auto out = amount(value);
  return out ? std::optional(std::min(*out, 1.0)) : out;
}

std::string whole(double value) { return fixed_text(value, 0); }

// Two or three digits that tell something, of the first unit that suits.
template <std::size_t kCount>
std::string scaled(double value, double step, const std::array<const char*, kCount>& units) {
  std::size_t unit = 0;
  while (unit + 1 < kCount && value >= 999.5) value /= step, ++unit;
  return fixed_text(value, unit > 0 && value < 99.95 ? 1 : 0) + " " + units[unit];
}

std::string rate_text(double bytes) {
  return scaled(bytes, 1000, std::array{"B/s", "kB/s", "MB/s", "GB/s"});
}

std::string generation_text(std::optional<double> generation, std::optional<double> lanes) {
  std::string out = generation ? "gen " + whole(*generation) : "";
  if (lanes) out += (out.empty() ? "x" : " x") + whole(*lanes);
  return out;
}

TopLink link_at(const Json& card) {
  return {.generation = amount(number_at(card, "pcie_generation")),
          .lanes = amount(number_at(card, "pcie_lanes")),
          .most_generation = amount(number_at(card, "pcie_most_generation")),
          .most_lanes = amount(number_at(card, "pcie_most_lanes")),
          .tx_bytes = amount(number_at(card, "pcie_tx_bytes_per_second")),
          .rx_bytes = amount(number_at(card, "pcie_rx_bytes_per_second"))};
}

std::optional<TopXid> xid_at(const Json& card) {
  constexpr double kMostXid = 1e6, kMostTime = 1e11;
  const auto code = number_at(card, "xid"), time = number_at(card, "xid_unix_seconds");
  if (!code || *code < 0 || *code > kMostXid) return std::nullopt;
  TopXid out{.code = static_cast<int>(*code), .text = text_at(card, "xid_text")};
  if (time && *time > 0 && *time < kMostTime)
    out.time = WallTime(std::chrono::seconds(static_cast<std::int64_t>(*time)));
  out.count = amount(number_at(card, "xids"));
  return out;
}

}  // namespace

bool is_silent(const Json& gpu) {
  constexpr double kQuietSeconds = 3;  // the page has the same
  if (true_at(gpu, "stale")) return true;
  if (text_at(gpu, "error").empty()) return false;
  const auto silent = number_at(gpu, "silent_seconds");
  return !silent || *silent >= kQuietSeconds;
}

TopCard card_at(const Json& gpu) {
  if (is_silent(gpu)) return {};
  const auto at = gpu.find("card");
  if (at == gpu.end() || !at->is_object()) return {};
  const Json& card = *at;
  return {.memory_used = amount(number_at(card, "memory_used_bytes")),
          .memory_total = amount(number_at(card, "memory_total_bytes")),
          .link = link_at(card),
          .fan = ratio(number_at(card, "fan_ratio")),
          .encoder = ratio(number_at(card, "encoder_ratio")),
          .decoder = ratio(number_at(card, "decoder_ratio")),
          .corrected = amount(number_at(card, "ecc_corrected_errors")),
          .uncorrected = amount(number_at(card, "ecc_uncorrected_errors")),
          .xid = xid_at(card)};
}

std::string memory_cell(const TopCard& card) {
  constexpr double kTen = 9.95;
  const auto gib = [](double bytes) {
    const double value = bytes / kGiB;
    return fixed_text(value, value < kTen && value > 0 ? 1 : 0);
  };
  if (!card.memory_used && !card.memory_total) return "";
  const std::string total = card.memory_total ? "/" + whole(*card.memory_total / kGiB) : "";
  return (card.memory_used ? gib(*card.memory_used) : "-") + total + "G";
}

std::string memory_text(double bytes) {
  if (!amount(bytes)) return "-";
  return scaled(bytes / (1024 * 1024), 1024, std::array{"MiB", "GiB", "TiB"});
}

std::string used_memory_text(const TopCard& card) {
  const auto &used = card.memory_used, &total = card.memory_total;
  if (!used) return total ? "of " + memory_text(*total) : "";
  if (!total) return memory_text(*used);
  const std::string share =
      *total > 0 ? fmt::format(" ({} %)", whole(std::min(1.0, *used / *total) * 100)) : "";
  return memory_text(*used) + " of " + memory_text(*total) + share;
}

std::string link_text(const TopLink& link) {
  std::string now = generation_text(link.generation, link.lanes);
  const std::string most = generation_text(link.most_generation, link.most_lanes);
  if (now.empty() || most.empty() || now == most) return now;
  return now + ", up to " + most;
}

std::string link_rates_text(const TopLink& link) {
  std::string out = link.rx_bytes ? "rx " + rate_text(*link.rx_bytes) : "";
  if (link.tx_bytes) out += (out.empty() ? "tx " : ", tx ") + rate_text(*link.tx_bytes);
  return out;
}

std::string ecc_text(const TopCard& card) {
  if (card.corrected == 0.0 && card.uncorrected == 0.0) return "none";
  std::string out = card.corrected ? whole(*card.corrected) + " corrected" : "";
  if (card.uncorrected)
    out += (out.empty() ? "" : ", ") + whole(*card.uncorrected) + " uncorrected";
  return out;
}

std::string last_xid_text(const TopXid& xid) {
  std::string out = fmt::format("{}", xid.code);
  if (xid.time) out += " at " + second_text(*xid.time);
  if (!xid.text.empty()) out += " (" + xid.text + ")";
  if (xid.count && *xid.count > 1)
    out += ", " + whole(*xid.count) + " since derated opened the GPU";
  return out;
}

}  // namespace derate::cli
