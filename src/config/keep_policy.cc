#include "config/keep_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>

#include "base/text.h"

namespace derate {
namespace {

std::string without_quotes(const std::string& value) {
  const bool quoted = value.size() >= 2 && value.front() == '"' && value.back() == '"';
  return quoted ? value.substr(1, value.size() - 2) : value;
}

// The text of a setting, without quotes; empty: none.
std::string text_now(std::span<const SettingNow> now, const std::string& key) {
  const auto at =
      std::find_if(now.begin(), now.end(), [&](const SettingNow& each) { return each.key == key; });
  return at == now.end() ? "" : without_quotes(at->value);
}

// A word that a shell takes as it is.
std::string for_shell(const std::string& word) {
  constexpr std::string_view kPlain = "._=,:-";
  const bool plain = std::all_of(word.begin(), word.end(), [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || kPlain.find(c) != kPlain.npos;
  });
  return plain ? word : "'" + word + "'";
}

// Settings to be made, by key; in the order of its keys.
using Wanted = std::map<std::string, std::string>;

bool is_as_now(const Wanted& wanted, std::span<const SettingNow> now) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const auto& each) { return text_now(now, each.first) == each.second; });
}

std::string gpus_text(const WishToKeep& wish, const Wanted& wanted,
                      std::span<const SettingNow> now) {
  const std::string before = text_now(now, "governor.gpus");
  const bool governs = text_now(now, "governor.govern") == "true";
  if (!governs || wish.gpus.empty() || !is_as_now(wanted, now))
    return fmt::format("{}", fmt::join(wish.gpus, ","));
  if (before.empty()) return "";  // all of them already
  std::vector<std::string> all;
  for (const std::string_view each : split(before, ',')) all.emplace_back(trim(each));
  for (const std::string& each : wish.gpus)
    if (std::find(all.begin(), all.end(), each) == all.end()) all.push_back(each);
  return fmt::format("{}", fmt::join(all, ","));
}

std::string undo_text(const Wanted& wanted, std::span<const SettingNow> now) {
  std::string out = "derate config set";
  for (const auto& pair : wanted) {
    const auto& key = pair.first;
    const auto at = std::find_if(now.begin(), now.end(), [&](const SettingNow& each) {
      return each.key == key && each.is_set;
    });
    out += at == now.end() ? fmt::format(" --unset {}", key)
                           : " " + for_shell(fmt::format("{}={}", key, without_quotes(at->value)));
  }
  return out;
}

}  // namespace

KeptPolicy keep_policy(const WishToKeep& wish, std::span<const SettingNow> now) {
  Wanted wanted;
  const std::string policy = wish.policy.empty() ? text_now(now, "governor.policy") : wish.policy;
  if (!wish.policy.empty()) wanted["governor.policy"] = wish.policy;
  wanted["governor.dry_run"] = wish.dry_run ? "true" : "false";
  for (const std::string& each : wish.assignments) {
    const auto equals = each.find('=');
    wanted[fmt::format("policy.{}.{}", policy, trim(each.substr(0, equals)))] =
        trim(each.substr(equals + 1));
  }
  const std::string gpus = gpus_text(wish, wanted, now);
  wanted["governor.gpus"] = gpus;
  wanted["governor.govern"] = "true";
  KeptPolicy out{.set = {}, .undo = undo_text(wanted, now)};
  for (const auto& [key, value] : wanted) out.set.push_back(key + "=" + value);
  return out;
}

}  // namespace derate
